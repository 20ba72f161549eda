// What the model made of a step, and what the scheduler answers to it.
#ifndef TALLY_ENGINE_CORE_STEP_OUTCOME_H_
#define TALLY_ENGINE_CORE_STEP_OUTCOME_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/types.h"
#include "engine/core/prefill_stats.h"
#include "engine/core/request.h"
#include "engine/kv/kv_events.h"

namespace tally {

// Sampled tokens of the oldest step that was not updated yet, in compressed rows: request i of that
// step's plan has sampled_tokens[sampled_offsets[i] .. sampled_offsets[i+1]). A row holds accepted
// drafts and one more token, and is empty for a request that does not sample. Both arrays live
// until the scheduler's next call.
struct StepOutcome {
  std::span<const std::uint32_t> sampled_offsets;  // one more than there are requests
  std::span<const TokenId> sampled_tokens;
  // Places in the plan, ascending: pooling requests whose result is there, and requests whose
  // grammar refuses the sampled tokens (UPD-7); without a grammar that means nothing.
  std::span<const std::uint32_t> pooled;
  std::span<const std::uint32_t> refused_by_grammar;
  // From the workers of the KV connector: ids of requests whose transfer ended in all of them, and
  // blocks that a load could not fill.
  std::span<const std::string_view> finished_recving;
  std::span<const std::string_view> finished_sending;
  std::span<const BlockId> invalid_blocks;
};

// What the client of a request gets from one step.
struct RequestOutput {
  RequestHandle request = kNoRequest;
  FinishReason finish_reason = FinishReason::kNone;
  StopCause stop_cause;
  bool pooled = false;                          // the pooler's result is delivered
  std::span<const TokenId> tokens;              // a part of StepOutcome::sampled_tokens
  const PrefillStats* prefill_stats = nullptr;  // with the first output of the request only
  std::span<const RequestEvent> events;         // since its last output
  const nlohmann::json* kv_transfer_params =
      nullptr;  // from the KV connector, with the last output
};

// Look-ups of the local prefix cache since the last statistics (metrics.md 3.1). Look-ups of
// requests that were preempted before are told apart: public counters leave them out.
struct PrefixCacheStats {
  bool reset = false;  // the cache was emptied
  std::int64_t requests = 0;
  std::int64_t queries = 0;  // tokens
  std::int64_t hits = 0;     // tokens
  std::int64_t preempted_requests = 0;
  std::int64_t preempted_queries = 0;
  std::int64_t preempted_hits = 0;

  void Record(std::int64_t num_queries, std::int64_t num_hits, bool preempted) {
    (preempted ? preempted_requests : requests) += 1;
    (preempted ? preempted_queries : queries) += num_queries;
    (preempted ? preempted_hits : hits) += num_hits;
  }
};

// Drafts that were verified in a step (metrics.md 3.3).
struct SpecDecodingStats {
  std::int64_t num_drafts = 0;  // requests with drafts
  std::int64_t num_draft_tokens = 0;
  std::int64_t num_accepted_tokens = 0;
  std::span<const std::int64_t> accepted_per_position;  // num_speculative_tokens entries
};

// The scheduler after an update (scheduler.md STA-2).
struct SchedulerStats {
  std::int32_t num_running = 0;
  std::int32_t num_waiting = 0;
  std::int32_t num_skipped = 0;  // passed over: blocked or deferred
  double kv_cache_usage = 0;     // share of usable blocks in use
  PrefixCacheStats prefix_cache;
  // Look-ups in the KV connector of requests that were admitted; absent without one.
  std::optional<PrefixCacheStats> connector_prefix_cache;
  SpecDecodingStats spec_decoding;
};

// Views live until the scheduler's next call.
struct StepResult {
  std::span<const RequestOutput> outputs;
  std::span<const KvEvent> kv_events;  // since the last update
  SchedulerStats stats;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_STEP_OUTCOME_H_
