// Random commands on a small scheduler, for property tests: requests, sessions, aborts, resets, and
// what the workers of a KV connector report, with faults. After every call the harness asserts the
// invariants of scheduler.md section 12 and kv_cache.md 6.2; here the rules that span calls are
// asserted: PrefillStats once and whole, nothing after the end, every request ends, every block
// comes back.
#ifndef TALLY_ENGINE_CORE_RANDOM_RUN_H_
#define TALLY_ENGINE_CORE_RANDOM_RUN_H_

#include <rapidcheck.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/core/scheduler_harness.h"

namespace tally {

struct World {
  EngineConfig config;
  int depth = 1;  // steps outstanding at most
  bool sessions = false;
  // Of a KV connector, with parameters for each request; null for none.
  std::function<std::unique_ptr<KvConnector>()> connector;
  std::function<std::shared_ptr<const nlohmann::json>()> draw_params;
};

// Drives one world; asserts what spans calls.
class RandomRun {
 public:
  explicit RandomRun(const World& world)
      : world_(world), t_(world.config, world.connector ? world.connector() : nullptr) {}

  void Command() {
    switch (*rc::gen::weightedElement<int>({{3, 0}, {8, 1}, {1, 2}, {1, 3}, {1, 4}})) {
      case 4:
        ContinueSession();
        break;
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
        sessions_.erase(id);
        log_ += "abort " + id + "\n";
        break;
      }
      default: {
        const bool running = !world_.config.async_scheduling && *rc::gen::arbitrary<bool>();
        const absl::StatusOr<bool> reset = t_.scheduler().ResetPrefixCache(running, t_.now());
        // Blocks of sessions, loads and ended requests stay in use.
        const bool holds = world_.sessions || world_.connector;
        RC_ASSERT(reset.ok() || holds);
        if (running && !holds) RC_ASSERT(*reset);
        t_.scheduler().CheckInvariants();
        log_ += absl::StrCat("reset ", reset.ok() && *reset, "\n");
      }
    }
  }

  // No more arrivals: everything must end within a bounded number of steps.
  void Drain() {
    draining_ = true;
    log_ += "drain\n";
    for (const std::string& id : std::set<std::string>(sessions_)) EndSession(id);
    for (int step = 0; step < 1000 && t_.scheduler().has_work(); ++step) Step();
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
    if (!world_.sessions) CheckPrefixCacheCounters();
  }

  const std::string& log() const { return log_; }

 private:
  // The counters of look-ups against what the clients were told. A request that ended before its
  // first output, or whose load failed from its first block, was looked up beside that.
  void CheckPrefixCacheCounters() const {
    if (world_.config.behavior.queries_counted_per_attempt) return;
    RC_ASSERT(t_.prompt_queries() >= looked_up_tokens_);
    RC_ASSERT(t_.prompt_hits() >= local_cached_tokens_);
    if (world_.connector || ended_.size() != with_prefill_.size()) return;
    RC_ASSERT(t_.prompt_queries() == looked_up_tokens_);
    RC_ASSERT(t_.prompt_hits() == local_cached_tokens_);
  }

  void Add() {
    const std::string id = absl::StrCat("r", added_++);
    // Two stems and few token values, so that prompts share prefixes.
    std::vector<TokenId> prompt(*rc::gen::inRange<std::size_t>(1, 30), *rc::gen::inRange(1, 3));
    if (*rc::gen::arbitrary<bool>()) prompt.back() = *rc::gen::inRange(1, 4);
    RequestSpec rest;
    if (world_.draw_params) rest.kv_transfer_params = world_.draw_params();
    rest.resumable = world_.sessions && *rc::gen::inRange(0, 3) == 0;
    const std::int32_t max_tokens = *rc::gen::inRange(1, 30);
    rest.min_tokens = *rc::gen::inRange(0, max_tokens + 1);
    if (*rc::gen::arbitrary<bool>()) rest.eos_token_id = 5;
    rest.priority = *rc::gen::inRange(0, 3);
    rest.skip_reading_prefix_cache = *rc::gen::inRange(0, 5) == 0;
    if (t_.Add(id, prompt, max_tokens, rest).ok()) {
      known_.insert(id);
      if (rest.resumable) sessions_.insert(id);
      prompt_length_[id] = static_cast<std::int32_t>(prompt.size());
      if (world_.config.kv.enable_prefix_caching && !rest.skip_reading_prefix_cache)
        looked_up_.insert(id);
    } else {
      RC_ASSERT(!world_.config.behavior.queues_impossible_requests);
    }
    log_ += "add " + id + "\n";
  }

  void ContinueSession() {
    if (sessions_.empty()) return;
    const std::string id =
        *rc::gen::elementOf(std::vector<std::string>(sessions_.begin(), sessions_.end()));
    if (*rc::gen::inRange(0, 3) == 0) return EndSession(id);
    const std::vector<TokenId> chunk(*rc::gen::inRange<std::size_t>(1, 6), *rc::gen::inRange(1, 3));
    RequestSpec rest;
    rest.resumable = true;
    rest.eos_token_id = 5;
    const absl::Status status = t_.Add(id, chunk, *rc::gen::inRange(1, 8), rest);
    RC_ASSERT(status.ok() || absl::IsOutOfRange(status));  // no room for it, ever
    log_ += "chunk " + id + "\n";
  }

  void EndSession(const std::string& id) {
    RC_ASSERT(t_.Add(id, {}, 1).ok());
    sessions_.erase(id);
    // Without a chunk under way it is gone at once, and tells nobody.
    if (!t_.scheduler().Find(id) ||
        IsFinished(t_.scheduler().state(*t_.scheduler().Find(id)).status))
      known_.erase(id);
    ending_.insert(id);
    log_ += "end " + id + "\n";
  }

  // Transfers that could have ended by now, some of them; with faults until the drain.
  TransferReports Reports() {
    TransferReports reports;
    if (!world_.connector) return reports;
    const Scheduler& scheduler = t_.scheduler();
    for (const RequestHandle request : scheduler.KnownRequests()) {
      const RequestState& state = scheduler.state(request);
      const std::string id(scheduler.id(request));
      const bool loads = state.status == RequestStatus::kWaitingForRemoteKvs;
      if ((loads || state.awaits_receive) && (draining_ || Draw(0, 3) == 0)) {
        reports.finished_recving.push_back(id);
        // Sometimes twice, in one report or two.
        if (!draining_ && Draw(0, 9) == 1) reports.finished_recving.push_back(id);
      }
      if (state.awaits_send && (draining_ || Draw(0, 3) == 0))
        reports.finished_sending.push_back(id);
      const std::span<const BlockId> table = scheduler.kv().Table(request, 0);
      const bool may_fail = loads || state.status == RequestStatus::kRunning;
      if (!draining_ && may_fail && !table.empty() && scheduler.kv().num_groups() == 1 &&
          Draw(0, 12) == 0) {
        const BlockId block =
            table[static_cast<std::size_t>(Draw(0, static_cast<int>(table.size())))];
        if (block != kNullBlock) reports.invalid_blocks.push_back(Index(block));
      }
    }
    if (!draining_ && Draw(0, 20) == 0) reports.finished_recving.push_back("nobody");
    if (!draining_ && Draw(0, 20) == 0) reports.finished_sending.push_back("nobody");
    return reports;
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
    for (const ClientOutput& output : t_.Update(sampled, 0, Reports())) {
      log_ += absl::StrCat("out ", output.id, " ", output.tokens.size(), " ",
                           FinishReasonName(output.finish).size(), "\n");
      RC_ASSERT(!ended_.contains(output.id));  // nothing after the end
      if (output.prefill) {
        RC_ASSERT(with_prefill_.insert(output.id).second);  // once
        const PrefillStats& p = *output.prefill;
        RC_ASSERT(p.num_prompt_tokens == prompt_length_[output.id]);
        if (looked_up_.contains(output.id)) looked_up_tokens_ += p.num_prompt_tokens;
        local_cached_tokens_ += p.num_local_cached_tokens;
        RC_ASSERT(p.num_computed_tokens + p.num_local_cached_tokens +
                      p.num_external_cached_tokens ==
                  p.num_prompt_tokens);
        RC_ASSERT(p.num_computed_tokens >= (world_.connector ? 0 : 1) &&
                  p.num_local_cached_tokens >= 0 && p.num_external_cached_tokens >= 0 &&
                  (world_.connector || p.num_external_cached_tokens == 0));
      } else {
        // With the first output, errors apart.
        RC_ASSERT(with_prefill_.contains(output.id) || output.finish == FinishReason::kError);
      }
      const std::optional<RequestHandle> left = t_.scheduler().Find(output.id);
      const bool is_over =
          !left ||
          IsFinished(t_.scheduler().state(*left).status);  // an ended session has chunks left
      if (output.finish != FinishReason::kNone && is_over) {
        sessions_.erase(output.id);
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
  std::set<std::string> sessions_;  // that may get more chunks
  std::set<std::string> ending_;
  std::set<std::string> ended_;
  std::set<std::string> reported_;
  std::set<std::string> with_prefill_;
  std::map<std::string, std::int32_t> prompt_length_;
  std::set<std::string> looked_up_;  // that may read the prefix cache
  std::int64_t looked_up_tokens_ = 0;
  std::int64_t local_cached_tokens_ = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_RANDOM_RUN_H_
