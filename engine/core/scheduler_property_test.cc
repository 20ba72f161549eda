// Random commands on small schedulers in many configurations; what is asserted: random_run.h.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/core/random_run.h"
#include "engine/core/scheduler_harness.h"

namespace tally {
namespace {

World ArbitraryWorld() {
  World world;
  EngineConfig& config = world.config;
  config = SchedulerHarness::SmallConfig(*rc::gen::inRange<std::uint32_t>(6, 20));
  config.kv.enable_prefix_caching = *rc::gen::weightedElement<bool>({{4, true}, {1, false}});
  config.max_num_seqs = *rc::gen::element(1, 2, 4, 8);
  config.max_num_batched_tokens = *rc::gen::element(8, 16, 64);
  config.long_prefill_token_threshold = *rc::gen::element(0, 0, 5);
  config.policy = *rc::gen::element(SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority);
  config.scheduler_reserve_full_isl = *rc::gen::arbitrary<bool>();
  config.async_scheduling = *rc::gen::arbitrary<bool>();
  config.num_speculative_tokens = *rc::gen::element(0, 0, 1, 3);
  config.use_eagle = config.num_speculative_tokens > 0 && *rc::gen::arbitrary<bool>();
  config.max_model_len = *rc::gen::element(24, 40, 256);
  world.depth = config.async_scheduling ? *rc::gen::inRange(1, 3) : 1;
  const KvGroupSpec full{AttentionKind::kFull, 4, 0};
  const KvGroupSpec window{AttentionKind::kSlidingWindow, 4, *rc::gen::element(1, 4, 9)};
  KvGroupSpec mamba{AttentionKind::kMamba, 4};
  mamba.mamba_mode = *rc::gen::element(MambaMode::kAll, MambaMode::kAlign);
  mamba.speculative_blocks = config.num_speculative_tokens;
  using Groups = std::vector<KvGroupSpec>;
  config.kv.groups =
      *rc::gen::element(Groups{full}, Groups{window}, Groups{full, window}, Groups{window, full},
                        Groups{mamba}, Groups{full, mamba}, Groups{mamba, full, window});
  return world;
}

RC_GTEST_PROP(SchedulerProperty, EveryRequestEndsAndEveryBlockComesBack, ()) {
  World world = ArbitraryWorld();
  world.config.behavior = Behavior::Corrected();
  world.sessions = *rc::gen::arbitrary<bool>();
  RandomRun run(world);
  const int commands = *rc::gen::inRange(0, 60);
  for (int i = 0; i < commands; ++i) run.Command();
  run.Drain();
}

// The hash algorithm, and with it every hash value, must not reach a decision (kv_cache.md KV-1).
RC_GTEST_PROP(SchedulerProperty, DecisionsDoNotDependOnHashValues, (std::uint64_t seed)) {
  EngineConfig config = SchedulerHarness::SmallConfig(12);
  config.behavior = Behavior::Vllm0_20();
  const auto decisions = [&](HashAlgorithm algorithm, std::uint64_t hash_seed) {
    config.kv.hash_algorithm = algorithm;
    config.kv.hash_seed = hash_seed;
    SchedulerHarness t(config);
    std::string log;
    std::uint64_t random = seed;
    const auto next = [&random](std::uint64_t bound) {
      random = random * 6364136223846793005ULL + 1442695040888963407ULL;
      return (random >> 33) % bound;
    };
    for (int step = 0; step < 40; ++step) {
      if (next(3) == 0) {
        std::vector<TokenId> prompt(1 + next(24), static_cast<TokenId>(1 + next(2)));
        RC_ASSERT(
            t.Add(absl::StrCat("r", step), prompt, static_cast<std::int32_t>(1 + next(20))).ok());
      }
      log += t.Step(static_cast<TokenId>(1 + next(2))).Text() + "\n";
    }
    return log;
  };
  const std::string reference = decisions(HashAlgorithm::kXxh3, 0);
  RC_ASSERT(decisions(HashAlgorithm::kXxh3, seed | 1) == reference);
  RC_ASSERT(decisions(HashAlgorithm::kSha256Cbor, 0) == reference);
}

}  // namespace
}  // namespace tally
