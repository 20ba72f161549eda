// What the scheduler keeps of a request: what the caller gave, where it stands, what it produced.
#ifndef TALLY_ENGINE_CORE_REQUEST_H_
#define TALLY_ENGINE_CORE_REQUEST_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/types.h"
#include "engine/core/prefill_stats.h"
#include "engine/kv/block_hasher.h"

namespace tally {

// scheduler.md REQ-1, in upstream's order: everything behind kPreempted is finished.
enum class RequestStatus : std::uint8_t {
  kWaiting = 1,
  kWaitingForStructuredOutputGrammar,
  kWaitingForRemoteKvs,
  kWaitingForStreamingRequest,
  kRunning,
  kPreempted,
  kFinishedStopped,
  kFinishedLengthCapped,
  kFinishedAborted,
  kFinishedIgnored,
  kFinishedError,
  kFinishedRepetition,
};

constexpr bool IsFinished(RequestStatus status) { return status > RequestStatus::kPreempted; }
// Statuses that only a promotion in Schedule, a streaming update or an end can leave (REQ-2).
constexpr bool IsBlocked(RequestStatus status) {
  return status == RequestStatus::kWaitingForStructuredOutputGrammar ||
         status == RequestStatus::kWaitingForRemoteKvs ||
         status == RequestStatus::kWaitingForStreamingRequest;
}
// REQ-1's name in lower case, for example "finished_length_capped".
std::string_view StatusName(RequestStatus status);
// As upstream's enumeration spells it: "FINISHED_LENGTH_CAPPED".
std::string UpperStatusName(RequestStatus status);

// Why an output ends its request (REQ-3).
enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kAbort, kError, kRepetition };
FinishReason FinishReasonOf(RequestStatus status);
// "stop", "length", "abort", "error", "repetition"; empty for kNone.
std::string_view FinishReasonName(FinishReason reason);

// What stopped a request beside its finish reason (STOP-3, STOP-5).
struct StopCause {
  enum class Kind : std::uint8_t { kNone, kToken, kRepetition };
  Kind kind = Kind::kNone;
  TokenId token = kNoToken;  // for kToken
};

// A request stops when its output ends in `min_count` equal groups of min_pattern_size to
// max_pattern_size tokens (STOP-7).
struct RepetitionDetection {
  std::int32_t max_pattern_size = 0;
  std::int32_t min_pattern_size = 0;
  std::int32_t min_count = 0;
};

// What happens to a request on its way (REQ-12); delivered with its next output.
struct RequestEvent {
  enum class Kind : std::uint8_t { kQueued = 1, kScheduled, kPreempted };
  Kind kind = Kind::kQueued;
  Seconds time = 0;
};
std::string_view EventName(RequestEvent::Kind kind);

// A request as the caller describes it. Views must live for the call only.
struct RequestSpec {
  std::string_view id;
  std::span<const TokenId> prompt;
  std::int32_t max_tokens = 16;
  std::int32_t min_tokens = 0;
  std::optional<TokenId> eos_token_id;  // absent when the end of sequence is ignored
  std::span<const TokenId> stop_token_ids;
  std::int64_t priority = 0;  // lower goes first; read under the priority policy only
  Seconds arrival_time = 0;
  std::string_view cache_salt;  // requests share cached blocks only under equal salts
  bool skip_reading_prefix_cache = false;
  std::optional<RepetitionDetection> repetition;
  std::int32_t lora_id = 0;  // adapter to run with; 0: none
  std::string_view lora_name;
  std::span<const MultimodalItem> encoder_inputs;  // in order of their offsets
  // Structured output: the request waits until SetGrammarReady.
  bool waits_for_grammar = false;
  // A pooling request: it has no outputs but the pooler's result; max_tokens is not read.
  bool pooling : 1 = false;
  // What the client tells the KV connector; null for none.
  std::shared_ptr<const nlohmann::json> kv_transfer_params;
  // A streaming session: further specs with the same id bring its next chunks, one that is not
  // resumable ends it (STR-1).
  bool resumable : 1 = false;
};

// The part of a request that the loop over running requests reads and writes: one cache line.
// Symbols as in scheduler.md.
struct alignas(64) RequestState {
  std::int32_t num_computed_tokens = 0;      // C: computed or scheduled
  std::int32_t num_tokens = 0;               // T: prompt and outputs
  std::int32_t num_prompt_tokens = 0;        // P
  std::int32_t num_output_placeholders = 0;  // H: scheduled by asynchronous steps, not yet received
  std::int32_t num_draft_tokens = 0;         // S
  std::int32_t max_tokens = 0;               // L
  std::int32_t min_tokens = 0;
  TokenId eos_token_id = kNoToken;
  std::int32_t next_hash_tokens =
      0;  // T at which the next block hash is due; 0 before the first look-up
  std::int32_t num_preemptions = 0;
  std::int32_t steps_in_flight = 0;  // steps that scheduled it and were not updated yet
  std::int32_t lora_id = 0;
  // Of the steps in flight the first so many were under way when the request was preempted or set
  // back: what they computed does not count. The outputs of the first dropped_steps of them are
  // dropped, those of the others are delivered.
  std::int16_t stale_steps = 0;
  std::int16_t dropped_steps = 0;
  RequestStatus status = RequestStatus::kWaiting;
  bool is_prefill_chunk = false;
  bool discard_latest_async_tokens = false;
  bool has_stop_tokens : 1 = false;
  bool has_repetition : 1 = false;
  bool has_events = false;
  bool has_prefill_stats = true;  // not yet delivered
  // Finished, but its blocks are kept until transfers end: the load of its prefix, the saving of
  // its blocks.
  bool awaits_receive : 1 = false;
  bool awaits_send : 1 = false;
  bool load_finished : 1 = false;  // the load that it waits for ended
  bool load_failed : 1 = false;    // a part of that load is not there
  bool load_ever_failed : 1 = false;
  bool has_encoder_inputs : 1 = false;
  bool resumable : 1 = false;
  bool pooling : 1 = false;
  bool has_grammar : 1 = false;  // its output has to follow a grammar
  bool grammar_ready : 1 = true;

  std::int32_t num_output_tokens() const { return num_tokens - num_prompt_tokens; }
  bool free_delayed() const { return awaits_receive || awaits_send; }
};
static_assert(sizeof(RequestState) == 64);

// The next chunk of a streaming session, or its end, waiting until the chunk before it stops.
struct SessionChunk {
  bool ends_session = false;
  std::vector<TokenId> prompt;
  Seconds arrival_time = 0;
  std::int32_t max_tokens = 0;
  std::int32_t min_tokens = 0;
  TokenId eos_token_id = kNoToken;
  std::vector<TokenId> stop_token_ids;
  std::optional<RepetitionDetection> repetition;
  std::vector<MultimodalItem> encoder_inputs;
};

// Which queue a request waits in.
enum class QueueName : std::uint8_t {
  kNone,
  kWaiting,
  kSkipped,
  kSkippedThisPass,
  kParked,
  kReady
};

// The rest of a request.
struct Request {
  std::string id;
  std::string cache_salt;
  Seconds arrival_time = 0;
  std::int64_t priority = 0;
  std::uint64_t sequence = 0;  // order of AddRequest
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;
  std::vector<TokenId> drafts;
  std::vector<TokenId> stop_token_ids;
  BlockHashChain hashes;
  std::vector<RequestEvent> events;
  RepetitionDetection repetition;
  PrefillStats prefill_stats;
  StopCause stop_cause;
  bool skip_reading_prefix_cache = false;
  std::string lora_name;
  std::vector<MultimodalItem> encoder_inputs;
  std::deque<SessionChunk> chunks;
  std::shared_ptr<const nlohmann::json> kv_transfer_params;
  // Places in the FCFS queue that holds the request.
  RequestHandle queue_previous = kNoRequest;
  RequestHandle queue_next = kNoRequest;
  QueueName queue = QueueName::kNone;
  // A second entry of that request in a queue; see RequestTable::InsertEcho.
  RequestHandle echo_of = kNoRequest;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_REQUEST_H_
