// The scheduler: decides at each step which requests run, on how many tokens and with which KV
// blocks.
//
//   auto scheduler = Scheduler::Create(config);
//   scheduler->AddRequest(spec, now);
//   while (scheduler->num_unfinished() > 0) {
//     StepPlan plan = *scheduler->Schedule(now);          // give it to the model ...
//     StepResult result = *scheduler->Update(outcome, now);  // ... and tell what came back
//   }
//
// Rules: scheduler.md (SCH, UPD, STOP, FIN, RST). The scheduler is deterministic, reads no clock,
// makes no input or output and is used by one thread at a time. The cost of a call is proportional
// to what it schedules or changes. In a steady state Schedule and Update allocate nothing.
//
// Errors: what a caller can get wrong is answered by a status that names the field and the value,
// and changes nothing.
#ifndef TALLY_ENGINE_CORE_SCHEDULER_H_
#define TALLY_ENGINE_CORE_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/types.h"
#include "engine/core/encoder_cache.h"
#include "engine/core/engine_config.h"
#include "engine/core/kv_connector.h"
#include "engine/core/request.h"
#include "engine/core/request_queue.h"
#include "engine/core/request_table.h"
#include "engine/core/step_outcome.h"
#include "engine/core/step_plan.h"
#include "engine/kv/block_hasher.h"
#include "engine/kv/kv_cache_manager.h"

namespace tally {

enum class PauseState : std::uint8_t {
  kUnpaused,
  kPausedNew,  // running requests go on, nothing is admitted
  kPausedAll,  // nothing is scheduled
};

class Scheduler {
 public:
  // Checks the configuration and makes a scheduler; allocates all blocks' bookkeeping.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(
      const EngineConfig& config, std::unique_ptr<KvConnector> connector = nullptr);

  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a request, or the next chunk of a streaming session. InvalidArgument for a field out of
  // range, AlreadyExists for an id in use, and (corrected behaviour) OutOfRange for a request that
  // could never run. O(prompt).
  absl::StatusOr<RequestHandle> AddRequest(const RequestSpec& spec, Seconds now);

  // Plans the next step. Synchronous schedulers alternate Schedule and Update; with
  // async_scheduling, or for a pipeline, several plans may be outstanding.
  absl::StatusOr<StepPlan> Schedule(Seconds now);

  // Takes the outcome of the oldest outstanding plan. FailedPrecondition when there is none,
  // InvalidArgument when rows do not fit the plan.
  absl::StatusOr<StepResult> Update(const StepOutcome& outcome, Seconds now);

  // Drafts for a request's next step (DRAFT-1); ignored for requests that ended or are in the
  // middle of a prefill.
  void SetDraftTokens(RequestHandle request, std::span<const TokenId> drafts);

  // The grammar of a request that waits for it is there.
  void SetGrammarReady(RequestHandle request) { requests_.state(request).grammar_ready = true; }

  // Ends requests; unknown and finished ids are passed over. Answers those that were ended, in the
  // order in which they were added; the view lives until the next call.
  std::span<const RequestHandle> Abort(std::span<const std::string_view> ids, Seconds now);

  // Empties the prefix cache; false, and no effect, while a block is in use. With `preempt_running`
  // all running requests are preempted first (RST-1, RST-2); FailedPrecondition when blocks stay in
  // use even then.
  absl::StatusOr<bool> ResetPrefixCache(bool preempt_running, Seconds now);

  void SetPauseState(PauseState state) { pause_state_ = state; }
  PauseState pause_state() const { return pause_state_; }

  // ---- Looking on -------------------------------------------------------------------------------
  const EngineConfig& config() const { return config_; }
  const KvCacheManager& kv() const { return kv_; }
  const KvConnector* connector() const { return connector_.get(); }
  const RequestState& state(RequestHandle request) const { return requests_.state(request); }
  const Request& request(RequestHandle request) const { return requests_.request(request); }
  std::string_view id(RequestHandle request) const { return requests_.request(request).id; }
  std::optional<RequestHandle> Find(std::string_view id) const { return requests_.Find(id); }
  // Requests that are known, finished ones with delayed blocks included, in the order of
  // AddRequest. O(n log n).
  std::vector<RequestHandle> KnownRequests() const { return requests_.InOrder(); }
  std::span<const RequestHandle> running() const { return running_; }
  std::vector<RequestHandle> Waiting() const { return waiting_.Order(); }
  std::vector<RequestHandle> Skipped() const;
  std::size_t num_skipped() const { return skipped_.size() + parked_.size() + ready_.size(); }
  std::size_t num_waiting() const { return waiting_.size() + num_skipped(); }
  // Requests that the loop still has to step for (CNT-2).
  std::size_t num_unfinished() const;
  // Whether the loop has to go on stepping: also for ended requests that were not reported yet, or
  // whose blocks wait for a transfer to end (BUG-10).
  bool has_work() const {
    return num_unfinished() > 0 || !outstanding_.empty() || !finished_.empty() || num_delayed_ > 0;
  }
  std::size_t num_outstanding_steps() const { return outstanding_.size(); }
  // The entries of the oldest outstanding plan: what the next Update is about. Empty when there is
  // none.
  std::span<const ScheduledRequest> oldest_outstanding() const;

  // For tests: aborts unless requests, queues and blocks agree (scheduler.md section 12).
  // O(everything).
  void CheckInvariants() const;

 private:
  Scheduler(const EngineConfig& config, std::unique_ptr<KvConnector> connector);

  // ---- Schedule, phase by phase (scheduler_plan.cc) ----
  void BeginStep();
  void ScheduleRunning(Seconds now);
  std::int32_t TokensForRunning(const RequestState& state) const;
  // Makes room for a running request, preempting others if need be. False when the request itself
  // had to go, or when fault_ was set.
  bool AllocateForRunning(RequestHandle request, ScheduledRequest& entry, std::size_t& position,
                          Seconds now);
  // Takes the next victim out of running_, and out of the step if it was in it; keeps `position` at
  // the same request.
  RequestHandle TakeVictim(std::size_t& position);
  bool WithdrawFromStep(RequestHandle victim);
  void TakeDrafts(RequestHandle request, ScheduledRequest& entry);
  void AdmitWaiting(Seconds now);
  // Blocks that requests which hold some still need for their known tokens. O(these requests).
  std::int64_t BlocksWantedByPrefills() const;
  // Tries to admit those that wait with blocks of their own; false when one of them did not fit.
  bool AdmitReady(Seconds now);
  // Tries to admit the head of a waiting queue; false ends the pass.
  bool AdmitHead(RequestQueue& queue, Seconds now);
  // Whether a request that waits for something may go on; changes its status if so.
  bool Promote(RequestHandle request);
  void PassOver(RequestQueue& queue);
  void LookUpPrefix(RequestHandle request);
  // What the first look-ups of a request found: locally in hit_, and `external` tokens behind that.
  // False when the connector does not know yet, or when fault_ was set.
  struct ExternalTokens {
    std::int32_t num_tokens = 0;
    bool load_async = false;
  };
  bool LookUp(RequestHandle request, ExternalTokens& external);
  bool LookAtLoras();
  bool LoraFits(const RequestState& state) const;
  // Cuts a step of a model with aligned Mamba states at block boundaries (SCH-60).
  std::int32_t AlignTokens(const RequestState& state, std::int32_t computed,
                           std::int32_t num_tokens) const;
  // The row of first_new_block_ that an allocation fills; kept only if blocks were added.
  std::span<std::uint32_t> NewBlocksRow();
  void AdvanceScheduled();
  StepPlan MakePlan();
  absl::Status PoolExhausted() const;

  // ---- Encoder inputs (scheduler_encoder.cc) ----
  // Chooses the inputs that a step of tokens computed .. computed + num_tokens - 1 needs, into
  // chosen_inputs_; answers how many tokens the step can have with what the encoder and its cache
  // can take (ENC-3).
  std::int32_t ChooseEncoderInputs(RequestHandle request, std::int32_t computed,
                                   std::int32_t num_tokens, std::int32_t ahead);
  std::int32_t ChosenEmbeddings(const Request& request) const;
  void ScheduleChosenInputs(RequestHandle request);
  // Releases the inputs that the request has passed.
  void ReleasePassedInputs(RequestHandle request);
  void ReleaseEncoderInputs(RequestHandle request);

  // ---- KV connector (scheduler_connector.cc) ----
  bool MatchExternal(RequestHandle request, ExternalTokens& external);
  // The load that a request waits for ended: what arrived counts as computed (KVL-4).
  void TakeLoad(RequestHandle request);
  // Sets the requests back whose computed tokens include a block of `invalid`; fills failed_ with
  // those whose outcome of this step means nothing (KVL-1 to 3).
  void HandleInvalidBlocks(std::span<const BlockId> blocks);
  // Looks through one request; answers whether one of its blocks is invalid. `marked` are the
  // invalid blocks that an earlier request will compute; those behind the first one that this
  // request has to compute go to evicted_.
  using BlockSet = absl::flat_hash_set<BlockId>;
  bool Truncate(RequestHandle request, const BlockSet& invalid, BlockSet& marked);
  std::int32_t TokensInUpdatedStep(RequestHandle request) const;
  void FailRequests(Seconds now);
  void TakeTransferReports(const StepOutcome& outcome);
  // The transfers that an ended request's blocks waited for are over.
  void EndDelay(RequestHandle request);

  // ---- Streaming sessions (scheduler_session.cc) ----
  RequestHandle ContinueSession(RequestHandle request, const RequestSpec& spec, Seconds now);
  void ApplyChunk(RequestHandle request, SessionChunk chunk, Seconds now);
  // A chunk stopped: goes on with the next, or waits for it. False when the session is over.
  bool GoOnWithSession(RequestHandle request, RequestStatus& stop, Seconds now);
  // Whether a session that stopped can ever run with so many more tokens.
  bool FitsSession(RequestHandle request, std::size_t chunk) const;
  // Makes another queue entry of a queued request.
  RequestHandle AddEcho(RequestHandle request);

  void Preempt(RequestHandle request, Seconds now);
  // What its steps in flight compute does not count any more; their outputs are dropped or still
  // delivered.
  enum class LateOutputs : std::uint8_t { kDeliver, kDrop };
  void SetBack(RequestHandle request, LateOutputs late);
  // Puts a request aside that holds blocks and waits for something; the second one, when that came.
  void Park(RequestHandle request);
  void Unpark(RequestHandle request);
  RequestQueue* QueueOf(RequestHandle request);
  void RemoveFromQueue(RequestHandle request);
  void RecordEvent(RequestHandle request, RequestEvent::Kind kind, Seconds now);

  // ---- Update (scheduler_update.cc) ----
  absl::Status CheckOutcome(std::span<const ScheduledRequest> step,
                            const StepOutcome& outcome) const;
  void UpdateRequest(const ScheduledRequest& entry, std::span<const TokenId> sampled, bool pooled,
                     bool refused, Seconds now);
  void AccountDrafts(const ScheduledRequest& entry, std::size_t num_sampled, bool stale);
  // Appends tokens until one stops the request; answers how many were taken, and the status to end
  // with in `stop`.
  std::size_t AppendTokens(RequestHandle request, std::span<const TokenId> sampled,
                           RequestStatus& stop);
  // The status that the newest token ends the request with, or its present status.
  RequestStatus CheckStop(RequestHandle request, TokenId last);
  void EmitOutput(RequestHandle request, std::span<const TokenId> tokens, FinishReason reason,
                  bool pooled);
  void RemoveStopped();
  SchedulerStats TakeStats();

  absl::Status CheckSpec(const RequestSpec& spec) const;
  absl::Status CheckParts(const RequestSpec& spec) const;  // adapters and encoder inputs
  // Ends a request; answers the transfer parameters for its client.
  std::shared_ptr<const nlohmann::json> FinishRequest(RequestHandle request, RequestStatus status,
                                                      Seconds now);
  // Gives the blocks of a request that ended back; its id is unknown from now on.
  void ReleaseFinished(RequestHandle request);
  // Brings a request's block hashes up to its tokens.
  void ExtendHashes(RequestHandle request);

  // What KV events tell about requests.
  class Contents final : public BlockContents {
   public:
    explicit Contents(const RequestTable& requests) : requests_(requests) {}
    const BlockHashChain& Hashes(RequestHandle request) const override;
    TokenSequence Tokens(RequestHandle request) const override;
    BlockExtraKeys ExtraKeys(RequestHandle request) const override;
    std::int32_t LoraId(RequestHandle request) const override;

   private:
    const RequestTable& requests_;
  };

  const EngineConfig config_;
  KvCacheManager kv_;
  BlockHasher hasher_;
  RequestTable requests_;
  std::vector<RequestHandle> running_;
  RequestQueue waiting_;
  RequestQueue skipped_;
  RequestQueue skipped_this_pass_;
  // Requests that wait with blocks of their own: for a load or for a session's next chunk; and
  // those of them that got it (corrected; else all are in skipped_).
  RequestQueue parked_;
  RequestQueue ready_;
  PauseState pause_state_ = PauseState::kUnpaused;
  // Tokens of a sequence at which it ends: max_model_len, or fewer where the pool cannot hold so
  // many (BUG-21).
  std::int32_t length_limit_;
  std::unique_ptr<EncoderCache> encoder_cache_;
  bool aligns_mamba_ = false;
  std::size_t num_waiting_for_streaming_ = 0;
  std::size_t num_delayed_ = 0;  // ended requests whose blocks wait for a transfer
  Contents contents_;
  std::unique_ptr<KvEventLog> event_log_;
  std::unique_ptr<KvConnector> connector_;
  // What upstream would crash with; only faithful behaviours set it.
  absl::Status fault_;

  // ---- The step being planned; what StepPlan views ----
  std::int32_t token_budget_ = 0;
  std::vector<ScheduledRequest> scheduled_;
  std::vector<std::uint32_t> first_new_block_;
  std::vector<TokenId> draft_tokens_;
  std::int32_t encoder_budget_ = 0;
  std::vector<ScheduledEncoderInput> encoder_inputs_;
  std::vector<std::int32_t> chosen_inputs_;  // of the request looked at
  std::vector<std::string> freed_encoder_hashes_;
  std::vector<std::int32_t> lora_ids_;  // adapters of the step
  std::vector<RequestHandle> preempted_;
  std::vector<RequestHandle> reported_finished_;
  std::vector<std::int32_t> common_prefix_blocks_;
  std::vector<BlockId> blocks_to_zero_;
  PrefixHit hit_;
  std::unique_ptr<const ConnectorMetadata> connector_metadata_;

  // ---- Between calls ----
  std::vector<std::vector<ScheduledRequest>> outstanding_;  // oldest first; a handful at most
  std::vector<std::vector<ScheduledRequest>> spare_steps_;  // memory of updated steps
  std::vector<RequestHandle> finished_;                     // since the last Schedule
  std::vector<RequestHandle>
      retired_;  // finished and reported; recycled once no step refers to them
  std::vector<RequestHandle> echoes_;  // queue entries beside the requests' own
  // Buffers of finished requests, kept for the next ones.
  std::vector<std::vector<TokenId>> spare_outputs_;
  std::vector<BlockHashChain> spare_hashes_;
  PrefixCacheStats prefix_cache_stats_;
  PrefixCacheStats connector_stats_;
  std::vector<RequestHandle> aborted_;

  // ---- The result being made; what StepResult views ----
  struct EventRange {
    std::size_t output;
    std::size_t begin;
    std::size_t count;
  };
  std::vector<ScheduledRequest> updated_step_;
  std::vector<RequestHandle> failed_;  // whose blocks a load could not fill
  std::vector<BlockId> evicted_;
  std::vector<std::shared_ptr<const nlohmann::json>> output_params_;
  std::vector<RequestOutput> outputs_;
  std::vector<PrefillStats> output_prefill_stats_;
  std::vector<RequestEvent> output_events_;
  std::vector<EventRange> event_ranges_;
  std::vector<KvEvent> kv_events_;
  bool stopped_running_ = false;
  std::vector<std::int64_t> accepted_per_position_;
  SpecDecodingStats spec_stats_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_SCHEDULER_H_
