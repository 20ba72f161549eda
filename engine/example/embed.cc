// Two requests with a common prefix, from the first step to the last token.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/core/scheduler.h"

int main() {
  tally::EngineConfig config;
  config.kv.block_size = 16;
  config.kv.num_blocks = 100;  // block 0 is never handed out
  auto scheduler = tally::Scheduler::Create(config);
  if (!scheduler.ok()) return 1;  // the status names the field and its value
  tally::Scheduler& engine = **scheduler;

  std::vector<tally::TokenId> prompt(40);
  std::iota(prompt.begin(), prompt.end(), 1000);
  tally::Seconds now = 0;
  if (!engine.AddRequest({.id = "first", .prompt = prompt, .max_tokens = 2}, now).ok()) return 1;

  bool second_added = false;
  while (engine.num_unfinished() > 0) {
    const auto plan = engine.Schedule(now);
    if (!plan.ok()) return 1;
    // Your model computes plan->requests here; this one samples the token 7, always.
    std::vector<std::uint32_t> offsets = {0};
    std::vector<tally::TokenId> sampled;
    for (const tally::ScheduledRequest& entry : plan->requests) {
      const std::string id(engine.id(entry.request));
      std::printf("%.0f ms: %s, tokens to compute: %d, blocks:", now * 1e3, id.c_str(),
                  entry.num_tokens);
      for (const tally::BlockId block : engine.kv().Table(entry.request, 0)) {
        std::printf(" %u", tally::Index(block));
      }
      std::printf("\n");
      if (entry.samples) sampled.push_back(7);
      offsets.push_back(static_cast<std::uint32_t>(sampled.size()));
    }
    now += 0.01;
    const auto result = engine.Update({.sampled_offsets = offsets, .sampled_tokens = sampled}, now);
    if (!result.ok()) return 1;
    for (const tally::RequestOutput& output : result->outputs) {
      if (const tally::PrefillStats* stats = output.prefill_stats) {
        const std::string id(engine.id(output.request));
        std::printf("%.0f ms: %s, prompt tokens: %d = %d computed + %d cached + %d transferred\n",
                    now * 1e3, id.c_str(), stats->num_prompt_tokens, stats->num_computed_tokens,
                    stats->num_local_cached_tokens, stats->num_external_cached_tokens);
      }
    }
    if (second_added) continue;
    second_added = true;
    prompt.resize(50, 5);  // the first prompt and ten tokens more
    if (!engine.AddRequest({.id = "second", .prompt = prompt, .max_tokens = 2}, now).ok()) return 1;
  }
  return 0;
}
