#include "engine/core/request.h"

namespace tally {

std::string_view StatusName(RequestStatus status) {
  switch (status) {
    case RequestStatus::kWaiting:
      return "waiting";
    case RequestStatus::kWaitingForStructuredOutputGrammar:
      return "waiting_for_structured_output_grammar";
    case RequestStatus::kWaitingForRemoteKvs:
      return "waiting_for_remote_kvs";
    case RequestStatus::kWaitingForStreamingRequest:
      return "waiting_for_streaming_req";
    case RequestStatus::kRunning:
      return "running";
    case RequestStatus::kPreempted:
      return "preempted";
    case RequestStatus::kFinishedStopped:
      return "finished_stopped";
    case RequestStatus::kFinishedLengthCapped:
      return "finished_length_capped";
    case RequestStatus::kFinishedAborted:
      return "finished_aborted";
    case RequestStatus::kFinishedIgnored:
      return "finished_ignored";
    case RequestStatus::kFinishedError:
      return "finished_error";
    case RequestStatus::kFinishedRepetition:
      return "finished_repetition";
  }
  return "";
}

FinishReason FinishReasonOf(RequestStatus status) {
  switch (status) {
    case RequestStatus::kWaitingForStreamingRequest:
    case RequestStatus::kFinishedStopped:
      return FinishReason::kStop;
    case RequestStatus::kFinishedLengthCapped:
    case RequestStatus::kFinishedIgnored:
      return FinishReason::kLength;
    case RequestStatus::kFinishedAborted:
      return FinishReason::kAbort;
    case RequestStatus::kFinishedError:
      return FinishReason::kError;
    case RequestStatus::kFinishedRepetition:
      return FinishReason::kRepetition;
    default:
      return FinishReason::kNone;
  }
}

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
    case FinishReason::kRepetition:
      return "repetition";
  }
  return "";
}

std::string UpperStatusName(RequestStatus status) {
  std::string name(StatusName(status));
  for (char& c : name) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return name;
}

std::string_view EventName(RequestEvent::Kind kind) {
  switch (kind) {
    case RequestEvent::Kind::kQueued:
      return "queued";
    case RequestEvent::Kind::kScheduled:
      return "scheduled";
    case RequestEvent::Kind::kPreempted:
      return "preempted";
  }
  return "";
}

}  // namespace tally
