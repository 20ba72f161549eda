// Drives a scheduler by names in tests: adds requests, runs steps, samples tokens, checks all
// invariants after every call.
#ifndef TALLY_ENGINE_CORE_SCHEDULER_HARNESS_H_
#define TALLY_ENGINE_CORE_SCHEDULER_HARNESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/scheduler.h"

namespace tally {

// One entry of a plan, with names and block ids in place of handles.
struct PlannedRequest {
  std::string id;
  ScheduledRequest::Kind kind;
  std::int32_t tokens;
  std::int32_t computed;
  std::int32_t outputs;
  std::vector<std::uint32_t>
      new_blocks;  // of group 0; the whole table for new and resumed requests
  std::vector<TokenId> drafts;
};

struct Planned {
  std::vector<PlannedRequest> requests;
  std::vector<std::string> preempted;
  std::vector<std::string> finished;
  std::vector<std::int32_t> common_prefix;

  // "new a[1,2]@0 n7; cached b[-]@8/o2 n1": the notation of scheduler.md section 11.
  std::string Text() const;
  // "a:7 b:1": who computes how many tokens.
  std::string Tokens() const;
};

struct ClientOutput {
  std::string id;
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  StopCause stop;
  std::optional<PrefillStats> prefill;
  std::vector<RequestEvent::Kind> events;
};

// What the workers of a connector report with an update.
struct TransferReports {
  std::vector<std::string> finished_recving;
  std::vector<std::string> finished_sending;
  std::vector<std::uint32_t> invalid_blocks;
};

class SchedulerHarness {
 public:
  explicit SchedulerHarness(const EngineConfig& config,
                            std::unique_ptr<KvConnector> connector = nullptr);

  // A configuration with `num_blocks` blocks of 4 tokens and roomy limits.
  static EngineConfig SmallConfig(std::uint32_t num_blocks);
  // Token ids first, first + 1, ...
  static std::vector<TokenId> Prompt(TokenId first, std::size_t length);

  Scheduler& scheduler() { return *scheduler_; }
  // Adds a request; the prompt's storage is the caller's for the call.
  absl::Status Add(std::string id, std::vector<TokenId> prompt, std::int32_t max_tokens,
                   RequestSpec rest = {});
  Planned Schedule();
  // Tokens for the requests of the oldest outstanding step; a sampling request without a row gets
  // `filler`.
  std::vector<ClientOutput> Update(const std::map<std::string, std::vector<TokenId>>& sampled = {},
                                   TokenId filler = 0, const TransferReports& reports = {});
  // Schedule and Update.
  Planned Step(TokenId filler = 0);
  void SetDrafts(const std::string& id, const std::vector<TokenId>& drafts);
  std::vector<std::string> Abort(const std::vector<std::string>& ids);

  // "R 7/8": status letter, computed and known tokens; "-" for an unknown request.
  std::string State(const std::string& id) const;
  std::vector<std::string> Names(std::span<const RequestHandle> requests) const;

  const std::vector<ClientOutput>& last_outputs() const { return last_outputs_; }
  const SchedulerStats& last_stats() const { return last_stats_; }
  // All outputs so far, by request.
  const std::map<std::string, std::vector<ClientOutput>>& outputs() const { return outputs_; }
  std::int64_t prompt_queries() const { return queries_; }
  std::int64_t prompt_hits() const { return hits_; }
  Seconds now() const { return now_; }

 private:
  Seconds Tick() { return now_ += 1; }

  std::unique_ptr<Scheduler> scheduler_;
  Seconds now_ = 0;
  std::vector<ClientOutput> last_outputs_;
  SchedulerStats last_stats_;
  std::map<std::string, std::vector<ClientOutput>> outputs_;
  std::int64_t queries_ = 0;
  std::int64_t hits_ = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_SCHEDULER_HARNESS_H_
