// Random commands on small schedulers. After every call the harness asserts the invariants of
// scheduler.md section 12 and kv_cache.md 6.2; here the rules that span calls are asserted:
// PrefillStats once and whole, token streams without gaps, every request ends, every block comes
// back, the same commands give the same answers.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/core/scheduler_harness.h"

namespace tally {
namespace {

struct World {
  EngineConfig config;
  int depth = 1;  // steps outstanding at most
};

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

// Drives one world; asserts what spans calls.
class Run {
 public:
  explicit Run(const World& world) : world_(world), t_(world.config) {}

  void Command() {
    switch (*rc::gen::weightedElement<int>({{3, 0}, {8, 1}, {1, 2}, {1, 3}})) {
      case 0:
        Add();
        break;
      case 1:
        Step();
        break;
      case 2: {
        if (known_.empty()) break;
        const std::string id =
            *rc::gen::elementOf(std::vector<std::string>(known_.begin(), known_.end()));
        for (const std::string& aborted : t_.Abort({id})) ended_.insert(aborted);
        known_.erase(id);
        log_ += "abort " + id + "\n";
        break;
      }
      default: {
        const bool running = !world_.config.async_scheduling && *rc::gen::arbitrary<bool>();
        const absl::StatusOr<bool> reset = t_.scheduler().ResetPrefixCache(running, t_.now());
        RC_ASSERT(reset.ok());
        RC_ASSERT(!running || *reset);
        t_.scheduler().CheckInvariants();
        log_ += absl::StrCat("reset ", *reset, "\n");
      }
    }
  }

  // No more arrivals: everything must end within a bounded number of steps.
  void Drain() {
    draining_ = true;
    log_ += "drain\n";
    for (int step = 0; step < 1000 && (t_.scheduler().num_unfinished() > 0 || outstanding_ > 0);
         ++step)
      Step();
    if (t_.scheduler().num_unfinished() > 0) {
      std::string left;
      for (const std::string& id : known_) left += absl::StrCat(id, " ", t_.State(id), "\n");
      RC_LOG() << log_.substr(0, 3000) << left << world_.config.max_model_len << " tokens, "
               << world_.config.kv.num_blocks << " blocks\n";
    }
    RC_ASSERT(t_.scheduler().num_unfinished() == 0U);
    RC_ASSERT(known_.empty());
    const KvCacheManager& kv = t_.scheduler().kv();
    RC_ASSERT(kv.num_free_blocks() == kv.pool().num_blocks() - 1);
  }

  const std::string& log() const { return log_; }

 private:
  void Add() {
    const std::string id = absl::StrCat("r", added_++);
    // Two stems and few token values, so that prompts share prefixes.
    std::vector<TokenId> prompt(*rc::gen::inRange<std::size_t>(1, 30), *rc::gen::inRange(1, 3));
    if (*rc::gen::arbitrary<bool>()) prompt.back() = *rc::gen::inRange(1, 4);
    RequestSpec rest;
    const std::int32_t max_tokens = *rc::gen::inRange(1, 30);
    rest.min_tokens = *rc::gen::inRange(0, max_tokens + 1);
    if (*rc::gen::arbitrary<bool>()) rest.eos_token_id = 5;
    rest.priority = *rc::gen::inRange(0, 3);
    rest.skip_reading_prefix_cache = *rc::gen::inRange(0, 5) == 0;
    if (t_.Add(id, prompt, max_tokens, rest).ok()) {
      known_.insert(id);
      prompt_length_[id] = static_cast<std::int32_t>(prompt.size());
    } else {
      RC_ASSERT(!world_.config.behavior.queues_impossible_requests);
    }
    log_ += "add " + id + "\n";
  }

  void Step() {
    if (outstanding_ < world_.depth) {
      const Planned planned = t_.Schedule();
      ++outstanding_;
      log_ += planned.Text() + "\n";
      std::set<std::string> seen;
      for (const PlannedRequest& request : planned.requests) {
        RC_ASSERT(request.tokens >= 1);
        RC_ASSERT(seen.insert(request.id).second);
      }
      for (const std::string& id : planned.finished) RC_ASSERT(reported_.insert(id).second);
    }
    if (outstanding_ == world_.depth) Update();
  }

  void Update() {
    std::map<std::string, std::vector<TokenId>> sampled;
    for (const ScheduledRequest& entry : t_.scheduler().oldest_outstanding()) {
      if (!entry.samples) continue;
      std::vector<TokenId>& row = sampled[std::string(t_.scheduler().id(entry.request))];
      for (int i = Draw(0, entry.num_draft_tokens + 1); i >= 0; --i) row.push_back(Draw(1, 6));
    }
    for (const ClientOutput& output : t_.Update(sampled)) {
      log_ += absl::StrCat("out ", output.id, " ", output.tokens.size(), " ",
                           FinishReasonName(output.finish).size(), "\n");
      RC_ASSERT(!ended_.contains(output.id));  // nothing after the end
      if (output.prefill) {
        RC_ASSERT(with_prefill_.insert(output.id).second);  // once
        const PrefillStats& p = *output.prefill;
        RC_ASSERT(p.num_prompt_tokens == prompt_length_[output.id]);
        RC_ASSERT(p.num_computed_tokens + p.num_local_cached_tokens +
                      p.num_external_cached_tokens ==
                  p.num_prompt_tokens);
        RC_ASSERT(p.num_computed_tokens >= 1 && p.num_local_cached_tokens >= 0 &&
                  p.num_external_cached_tokens == 0);
      } else {
        RC_ASSERT(with_prefill_.contains(output.id));  // with the first output
      }
      if (output.finish != FinishReason::kNone) {
        ended_.insert(output.id);
        known_.erase(output.id);
      }
    }
    --outstanding_;
    if (world_.config.num_speculative_tokens > 0 && !world_.config.async_scheduling) {
      for (RequestHandle request : t_.scheduler().running()) {
        const std::vector<TokenId> drafts(
            static_cast<std::size_t>(Draw(0, 1 + world_.config.num_speculative_tokens)), 2);
        t_.scheduler().SetDraftTokens(request, drafts);
      }
    }
  }

  World world_;
  SchedulerHarness t_;
  // In the drain nothing is drawn: a failure then shrinks to few commands.
  int Draw(int least, int most) {
    if (!draining_) return *rc::gen::inRange(least, most);
    return least + (drawn_++ * 7 % (most - least));
  }

  std::string log_;
  bool draining_ = false;
  int drawn_ = 0;
  int added_ = 0;
  int outstanding_ = 0;
  std::set<std::string> known_;
  std::set<std::string> ended_;
  std::set<std::string> reported_;
  std::set<std::string> with_prefill_;
  std::map<std::string, std::int32_t> prompt_length_;
};

RC_GTEST_PROP(SchedulerProperty, EveryRequestEndsAndEveryBlockComesBack, ()) {
  World world = ArbitraryWorld();
  world.config.behavior = Behavior::Corrected();
  Run run(world);
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
