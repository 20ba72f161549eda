// Streaming sessions: requests whose prompt comes in chunks, each answered before the next
// (scheduler.md 5.3).
#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/core/scheduler.h"

namespace tally {

RequestHandle Scheduler::ContinueSession(RequestHandle handle, const RequestSpec& spec,
                                         Seconds now) {
  SessionChunk chunk;
  chunk.ends_session = !spec.resumable;
  if (spec.resumable) {
    chunk.prompt.assign(spec.prompt.begin(), spec.prompt.end());
    chunk.arrival_time = spec.arrival_time;
    chunk.max_tokens = spec.max_tokens;
    chunk.min_tokens = spec.min_tokens;
    chunk.eos_token_id = spec.eos_token_id.value_or(kNoToken);
    chunk.stop_token_ids.assign(spec.stop_token_ids.begin(), spec.stop_token_ids.end());
    chunk.repetition = spec.repetition;
    chunk.encoder_inputs.assign(spec.encoder_inputs.begin(), spec.encoder_inputs.end());
  }
  const RequestState& state = requests_.state(handle);
  if (state.status != RequestStatus::kWaitingForStreamingRequest) {
    requests_.request(handle).chunks.push_back(std::move(chunk));
  } else if (chunk.ends_session) {
    --num_waiting_for_streaming_;
    RemoveFromQueue(handle);
    FinishRequest(handle, RequestStatus::kFinishedAborted, now);
  } else {
    --num_waiting_for_streaming_;
    ApplyChunk(handle, std::move(chunk), now);  // it stays where it is queued (STR-5)
    Unpark(handle);
  }
  return handle;
}

void Scheduler::ApplyChunk(RequestHandle handle, SessionChunk chunk, Seconds now) {
  RequestState& state = requests_.state(handle);
  Request& request = requests_.request(handle);
  // Outputs whose KV is there become a part of the prompt; the last sampled token was never
  // computed and is dropped (STR-1, STR-2).
  std::int32_t kept = state.num_computed_tokens - state.num_prompt_tokens;
  if (state.num_computed_tokens == 0 && !config_.behavior.preempted_session_is_lost)
    kept = state.num_output_tokens() - 1;
  kept = std::clamp(kept, 0, state.num_output_tokens());
  request.prompt.insert(request.prompt.end(), request.output.begin(),
                        request.output.begin() + kept);
  request.output.clear();
  if (!config_.behavior.session_keeps_stale_hashes) {
    const std::size_t complete =
        request.prompt.size() / static_cast<std::size_t>(hasher_.block_size());
    if (request.hashes.hashes.size() > complete) request.hashes.hashes.resize(complete);
    if (request.hashes.digests.size() > complete) request.hashes.digests.resize(complete);
    if (state.next_hash_tokens > 0) {
      state.next_hash_tokens =
          (static_cast<std::int32_t>(request.hashes.hashes.size()) + 1) * hasher_.block_size();
    }
  }
  const auto base = static_cast<std::int32_t>(request.prompt.size());
  for (MultimodalItem& input : chunk.encoder_inputs) {
    input.offset += base;
    request.encoder_inputs.push_back(std::move(input));
  }
  request.prompt.insert(request.prompt.end(), chunk.prompt.begin(), chunk.prompt.end());
  const std::int32_t uncomputed = state.num_prompt_tokens - state.num_computed_tokens;
  state.num_prompt_tokens = state.num_tokens = static_cast<std::int32_t>(request.prompt.size());
  // Upstream cuts all tokens to the computed ones, of the prompt too (BUG-6): the session is in no
  // queue any more, but its state tells so.
  if (config_.behavior.preempted_session_is_lost) state.num_tokens -= std::max(uncomputed, 0);
  if (state.next_hash_tokens > 0) ExtendHashes(handle);

  request.arrival_time = chunk.arrival_time;
  if (!config_.behavior.session_keeps_max_tokens) state.max_tokens = chunk.max_tokens;
  state.min_tokens = chunk.min_tokens;
  state.eos_token_id = chunk.eos_token_id;
  state.has_stop_tokens = !chunk.stop_token_ids.empty();
  request.stop_token_ids = std::move(chunk.stop_token_ids);
  state.has_repetition = chunk.repetition.has_value();
  request.repetition = chunk.repetition.value_or(RepetitionDetection{});
  state.has_encoder_inputs = !request.encoder_inputs.empty();
  if (!config_.behavior.session_keeps_stop_cause) request.stop_cause = StopCause{};
  state.status = RequestStatus::kWaiting;
  RecordEvent(handle, RequestEvent::Kind::kQueued, now);
}

bool Scheduler::GoOnWithSession(RequestHandle handle, RequestStatus& stop, Seconds now) {
  RequestState& state = requests_.state(handle);
  std::deque<SessionChunk>& chunks = requests_.request(handle).chunks;
  if (!config_.behavior.late_outputs_count_as_present && state.num_computed_tokens > 0) {
    // What was scheduled behind the last token is not this conversation's any more.
    state.num_computed_tokens =
        std::min(state.num_computed_tokens - state.num_output_placeholders, state.num_tokens - 1);
  }
  SetBack(handle, LateOutputs::kDrop);
  if (chunks.empty()) {
    state.status = RequestStatus::kWaitingForStreamingRequest;
    ++num_waiting_for_streaming_;
    Park(skipped_.Contains(handle) ? AddEcho(handle) : handle);
    return true;
  }
  SessionChunk chunk = std::move(chunks.front());
  chunks.pop_front();
  if (chunk.ends_session) return false;
  if (!config_.behavior.queues_impossible_requests && !FitsSession(handle, chunk.prompt.size())) {
    stop = RequestStatus::kFinishedLengthCapped;  // there is no room for the chunk, ever
    return false;
  }
  const bool was_running = state.status == RequestStatus::kRunning;
  ApplyChunk(handle, std::move(chunk), now);
  const bool is_queued = skipped_.Contains(handle);  // BUG-5
  if (is_queued || (!was_running && config_.behavior.preempted_session_is_lost)) return true;
  const bool goes_first =
      state.num_computed_tokens > 0 && !config_.behavior.kv_holders_wait_in_line;
  (goes_first ? ready_ : waiting_).Add(handle);
  return true;
}

bool Scheduler::FitsSession(RequestHandle handle, std::size_t chunk) const {
  return static_cast<std::int64_t>(requests_.state(handle).num_tokens) - 1 +
             static_cast<std::int64_t>(chunk) <=
         length_limit_;
}

RequestHandle Scheduler::AddEcho(RequestHandle request) {
  const RequestHandle echo = requests_.InsertEcho(request);
  kv_.Reserve(requests_.num_handles());
  echoes_.push_back(echo);
  return echo;
}

}  // namespace tally
