// Scheduler::Update: what the model sampled, who stops, what each client gets (scheduler.md section
// 4).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/core/repetition.h"
#include "engine/core/scheduler.h"

namespace tally {
namespace {

// Whether a step is one of the late ones, whose number is counted down.
bool TakeLate(std::int16_t& late_steps) {
  if (late_steps == 0) return false;
  --late_steps;
  return true;
}

}  // namespace

absl::StatusOr<StepResult> Scheduler::Update(const StepOutcome& outcome, Seconds now) {
  if (outstanding_.empty())
    return absl::FailedPreconditionError(
        "update: no step is outstanding, wanted a schedule before it");
  if (absl::Status status = CheckOutcome(outstanding_.front(), outcome); !status.ok())
    return status;
  if (!outcome.invalid_blocks.empty() && kv_.num_groups() > 1) {
    if (config_.behavior.load_failures_need_one_group) {
      return absl::InternalError("ValueError: too many values to unpack (expected 1)");
    }
    return absl::InvalidArgumentError("invalid_blocks: given, wanted none with several KV groups");
  }

  updated_step_.clear();
  updated_step_.swap(outstanding_.front());
  spare_steps_.push_back(std::move(outstanding_.front()));
  outstanding_.erase(outstanding_.begin());
  outputs_.clear();
  output_prefill_stats_.clear();
  output_prefill_stats_.reserve(updated_step_.size());  // outputs point into it
  output_events_.clear();
  event_ranges_.clear();
  spec_stats_ = SpecDecodingStats{};
  output_params_.clear();
  failed_.clear();
  if (!outcome.invalid_blocks.empty()) {
    HandleInvalidBlocks(outcome.invalid_blocks);
  }

  for (std::size_t i = 0; i < updated_step_.size(); ++i) {
    const std::uint32_t begin = outcome.sampled_offsets[i];
    const auto is_in = [i](std::span<const std::uint32_t> places) {
      return !places.empty() &&
             std::binary_search(places.begin(), places.end(), static_cast<std::uint32_t>(i));
    };
    UpdateRequest(updated_step_[i],
                  outcome.sampled_tokens.subspan(begin, outcome.sampled_offsets[i + 1] - begin),
                  is_in(outcome.pooled), is_in(outcome.refused_by_grammar), now);
  }
  RemoveStopped();
  if (!failed_.empty() && config_.load_failure_policy == LoadFailurePolicy::kFail)
    FailRequests(now);
  if (connector_ != nullptr && fault_.ok()) TakeTransferReports(outcome);
  if (!fault_.ok()) return std::exchange(fault_, absl::OkStatus());
  for (const EventRange& range : event_ranges_) {
    outputs_[range.output].events = std::span(output_events_).subspan(range.begin, range.count);
  }
  kv_events_.clear();
  if (event_log_ != nullptr) {
    event_log_->Take(kv_events_);
    if (connector_ != nullptr) connector_->TakeEvents(kv_events_);
  }
  return StepResult{outputs_, kv_events_, TakeStats()};
}

absl::Status Scheduler::CheckOutcome(std::span<const ScheduledRequest> step,
                                     const StepOutcome& outcome) const {
  const std::span<const std::uint32_t> offsets = outcome.sampled_offsets;
  if (offsets.size() != step.size() + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampled_offsets: ", offsets.size(), " entries, wanted ", step.size() + 1));
  }
  if (offsets.front() != 0 || offsets.back() != outcome.sampled_tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("sampled_offsets: ", offsets.front(), " to ",
                                                   offsets.back(), ", wanted 0 to ",
                                                   outcome.sampled_tokens.size()));
  }
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (offsets[i + 1] < offsets[i]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sampled_offsets[", i + 1, "]: ", offsets[i + 1], ", wanted at least ", offsets[i]));
    }
    const std::uint32_t sampled = offsets[i + 1] - offsets[i];
    const std::uint32_t most = step[i].samples && !requests_.state(step[i].request).pooling
                                   ? 1 + static_cast<std::uint32_t>(step[i].num_draft_tokens)
                                   : 0;
    if (sampled > most) {
      return absl::InvalidArgumentError(absl::StrCat("sampled of ",
                                                     std::string(id(step[i].request)), ": ",
                                                     sampled, " tokens, wanted at most ", most));
    }
  }
  for (const std::span<const std::uint32_t> places : {outcome.pooled, outcome.refused_by_grammar}) {
    if (!std::is_sorted(places.begin(), places.end()) ||
        (!places.empty() && places.back() >= step.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("pooled, refused_by_grammar: wanted ascending places below ", step.size()));
    }
  }
  for (std::uint32_t place : outcome.pooled) {
    const ScheduledRequest& entry = step[place];
    if (requests_.state(entry.request).pooling && entry.samples) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("pooled: ", std::string(id(entry.request)),
                     ", wanted a pooling request whose prompt is computed"));
  }
  for (TokenId token : outcome.sampled_tokens) {
    if (token < 0)
      return absl::InvalidArgumentError(absl::StrCat("sampled: ", token, ", wanted a token id"));
  }
  return absl::OkStatus();
}

void Scheduler::UpdateRequest(const ScheduledRequest& entry, std::span<const TokenId> sampled,
                              bool pooled, bool refused, Seconds now) {
  const RequestHandle request = entry.request;
  RequestState& state = requests_.state(request);
  --state.steps_in_flight;
  const bool dropped = TakeLate(state.dropped_steps);
  const bool stale = TakeLate(state.stale_steps);
  if (entry.num_tokens <= 0) fault_ = absl::InternalError("AssertionError: ");  // BUG-3
  if (!failed_.empty() && std::find(failed_.begin(), failed_.end(), request) != failed_.end())
    return;  // computed from KV that is not there
  if (IsFinished(state.status))
    return;  // ended while the step was under way: its output is nobody's
  if (dropped) return;
  if (entry.num_draft_tokens > 0 && !sampled.empty()) AccountDrafts(entry, sampled.size(), stale);
  if (state.has_encoder_inputs) ReleasePassedInputs(request);
  if (sampled.empty() && !pooled) return;
  if (config_.async_scheduling && state.discard_latest_async_tokens) {
    state.discard_latest_async_tokens = false;
    return;
  }
  const bool was_running = state.status == RequestStatus::kRunning;
  RequestStatus stop = pooled ? RequestStatus::kFinishedStopped : state.status;
  const std::size_t taken = AppendTokens(request, sampled, stop);
  if (!config_.behavior.late_outputs_count_as_present && !stale) {
    // Drafts behind the token that stops the request were accepted, but are not a part of it.
    state.num_computed_tokens -= static_cast<std::int32_t>(sampled.size() - taken);
  }
  if (config_.async_scheduling && !sampled.empty() && !stale) {
    // Tokens behind the one that stops the request are not taken, but were expected.
    state.num_output_placeholders -= static_cast<std::int32_t>(
        config_.behavior.late_outputs_count_as_present ? taken : sampled.size());
    if (state.num_output_placeholders < 0) {
      // A request that was preempted and admitted again before its late output came has its
      // placeholder taken by that output (BUG-15); the next one finds none, where upstream asserts.
      state.num_output_placeholders = 0;
      fault_ = absl::InternalError("AssertionError: ");
    }
    if (was_running) {
      kv_.Register(request, state.num_computed_tokens - state.num_output_placeholders,
                   requests_.request(request).hashes.hashes);
    }
  }
  if (refused && state.has_grammar && taken > 0) {
    stop = RequestStatus::kFinishedError;
    state.resumable = false;
  }
  if (!IsFinished(stop)) {
    EmitOutput(request, sampled.first(taken), FinishReason::kNone, pooled);
    return;
  }
  if (was_running) {
    stopped_running_ = true;
  } else if (!config_.behavior.stopped_requests_stay_skipped || !skipped_.Contains(request)) {
    RemoveFromQueue(request);
  }
  if (state.resumable && GoOnWithSession(request, stop, now)) {
    EmitOutput(request, sampled.first(taken), FinishReasonOf(stop), pooled);
    return;
  }
  EmitOutput(request, sampled.first(taken), FinishReasonOf(stop), pooled);
  if (std::shared_ptr<const nlohmann::json> params = FinishRequest(request, stop, now)) {
    output_params_.push_back(std::move(params));
    outputs_.back().kv_transfer_params = output_params_.back().get();
  }
}

void Scheduler::AccountDrafts(const ScheduledRequest& entry, std::size_t num_sampled, bool stale) {
  RequestState& state = requests_.state(entry.request);
  const auto accepted = static_cast<std::int32_t>(num_sampled) - 1;
  const std::int32_t rejected = entry.num_draft_tokens - accepted;
  // Zero for a request that was preempted meanwhile (UPD-4).
  if (state.num_computed_tokens > 0 && !stale) state.num_computed_tokens -= rejected;
  if (state.num_output_placeholders > 0 && !stale) state.num_output_placeholders -= rejected;
  if (spec_stats_.num_drafts == 0)
    std::fill(accepted_per_position_.begin(), accepted_per_position_.end(), 0);
  spec_stats_.num_drafts += 1;
  spec_stats_.num_draft_tokens += entry.num_draft_tokens;
  spec_stats_.num_accepted_tokens += accepted;
  spec_stats_.accepted_per_position = accepted_per_position_;
  for (std::int32_t i = 0; i < accepted; ++i) ++accepted_per_position_[static_cast<std::size_t>(i)];
}

std::size_t Scheduler::AppendTokens(RequestHandle handle, std::span<const TokenId> sampled,
                                    RequestStatus& stop) {
  RequestState& state = requests_.state(handle);
  Request& request = requests_.request(handle);
  std::size_t taken = 0;
  while (taken < sampled.size() && !IsFinished(stop)) {
    const TokenId token = sampled[taken++];
    request.output.push_back(token);
    ++state.num_tokens;
    if (state.num_tokens >= state.next_hash_tokens) ExtendHashes(handle);
    stop = CheckStop(handle, token);
  }
  return taken;
}

RequestStatus Scheduler::CheckStop(RequestHandle handle, TokenId last) {
  const RequestState& state = requests_.state(handle);
  const bool below_minimum = state.num_output_tokens() < state.min_tokens;
  if (below_minimum && config_.behavior.min_tokens_hides_length_limits) return state.status;
  if (last == state.eos_token_id) return RequestStatus::kFinishedStopped;
  Request& request = requests_.request(handle);
  if (state.has_stop_tokens) {
    const std::vector<TokenId>& stops = request.stop_token_ids;
    if (std::find(stops.begin(), stops.end(), last) != stops.end()) {
      request.stop_cause = {StopCause::Kind::kToken, last};
      return RequestStatus::kFinishedStopped;
    }
  }
  if (state.num_tokens >= length_limit_ || state.num_output_tokens() >= state.max_tokens) {
    return RequestStatus::kFinishedLengthCapped;
  }
  if (state.has_repetition && !below_minimum &&
      EndsInRepetition(request.output, request.repetition)) {
    request.stop_cause = {StopCause::Kind::kRepetition, kNoToken};
    return RequestStatus::kFinishedRepetition;
  }
  return state.status;
}

void Scheduler::EmitOutput(RequestHandle handle, std::span<const TokenId> tokens,
                           FinishReason reason, bool pooled) {
  RequestState& state = requests_.state(handle);
  RequestOutput output;
  output.request = handle;
  output.finish_reason = reason;
  output.pooled = pooled;
  output.tokens = tokens;
  if (reason != FinishReason::kNone ||
      (state.resumable && config_.behavior.session_keeps_stop_cause))
    output.stop_cause = requests_.request(handle).stop_cause;
  if (state.has_prefill_stats) {  // with the first output and never again (PF-5, PF-6)
    state.has_prefill_stats = false;
    output_prefill_stats_.push_back(requests_.request(handle).prefill_stats);
    output.prefill_stats = &output_prefill_stats_.back();
  }
  if (state.has_events) {
    state.has_events = false;
    std::vector<RequestEvent>& events = requests_.request(handle).events;
    event_ranges_.push_back({outputs_.size(), output_events_.size(), events.size()});
    output_events_.insert(output_events_.end(), events.begin(), events.end());
    events.clear();
  }
  outputs_.push_back(output);
}

void Scheduler::RemoveStopped() {
  if (std::exchange(stopped_running_, false)) {
    // A session that goes on waits for its next chunk: it does not run either.
    std::erase_if(running_, [this](RequestHandle r) {
      return requests_.state(r).status != RequestStatus::kRunning;
    });
  }
}

SchedulerStats Scheduler::TakeStats() {
  return {.num_running = static_cast<std::int32_t>(running_.size()),
          .num_waiting = static_cast<std::int32_t>(waiting_.size()),
          .num_skipped = static_cast<std::int32_t>(num_skipped()),
          .kv_cache_usage = kv_.usage(),
          .prefix_cache = std::exchange(prefix_cache_stats_, PrefixCacheStats{}),
          .connector_prefix_cache =
              connector_ == nullptr
                  ? std::nullopt
                  : std::optional(std::exchange(connector_stats_, PrefixCacheStats{})),
          .spec_decoding = spec_stats_};
}

}  // namespace tally
