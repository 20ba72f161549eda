// What the front end learns from the outputs of one step (metrics.md sections 1.2 and 2).
#ifndef TALLY_ENGINE_ACCOUNTING_ITERATION_STATS_H_
#define TALLY_ENGINE_ACCOUNTING_ITERATION_STATS_H_

#include <cstdint>
#include <vector>

#include "engine/base/types.h"
#include "engine/core/prefill_stats.h"
#include "engine/core/request.h"

namespace tally {

// Prompt tokens by where their KV came from (PT-1).
struct PromptTokenStats {
  std::int64_t computed = 0;
  std::int64_t local_cache_hit = 0;
  std::int64_t external_kv_transfer = 0;
  std::int64_t cached = 0;
  std::int64_t total = 0;

  void Add(const PrefillStats& stats) {
    computed += stats.num_computed_tokens;
    local_cache_hit += stats.num_local_cached_tokens;
    external_kv_transfer += stats.num_external_cached_tokens;
    cached += stats.num_cached_tokens;
    total += stats.num_prompt_tokens;
  }
};

// A request that ended (FS-2). Nothing is clamped: an arrival given ahead of the clock makes
// latencies negative.
struct FinishedRequestStats {
  FinishReason reason = FinishReason::kNone;
  Seconds e2e_latency = 0;  // arrival to the reception of the last output
  Seconds queued = 0;       // queued to first scheduled
  Seconds prefill = 0;      // first scheduled to first output
  Seconds inference = 0;    // first scheduled to last output
  Seconds decode = 0;       // first to last output
  Seconds mean_per_output_token = 0;
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_generation_tokens = 0;
  std::int64_t num_cached_tokens = 0;
  std::int64_t max_tokens = 0;
};

struct IterationStats {
  std::int64_t num_generation_tokens = 0;
  std::int64_t num_preempted_requests = 0;
  PromptTokenStats prompt_tokens;
  std::vector<Seconds> times_to_first_token;
  std::vector<Seconds> inter_token_latencies;  // one an output, however many tokens it holds (IT-7)
  std::vector<FinishedRequestStats> finished;

  // Keeps the memory.
  void Clear() {
    num_generation_tokens = 0;
    num_preempted_requests = 0;
    prompt_tokens = {};
    times_to_first_token.clear();
    inter_token_latencies.clear();
    finished.clear();
  }
};

}  // namespace tally

#endif  // TALLY_ENGINE_ACCOUNTING_ITERATION_STATS_H_
