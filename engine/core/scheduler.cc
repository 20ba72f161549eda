#include "engine/core/scheduler.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace tally {
namespace {

constexpr std::int32_t kMaxTokens = 1 << 29;

EngineConfig Completed(EngineConfig config) {
  if (config.encoder_decoder) {
    // Cross attention needs the whole encoder output with the first token (section 8 of
    // scheduler.md).
    config.enable_chunked_prefill = false;
    config.long_prefill_token_threshold = 0;
    config.disable_chunked_mm_input = true;
  }
  config.kv.max_model_len = config.max_model_len;
  config.kv.max_num_batched_tokens = config.max_num_batched_tokens;
  config.kv.use_eagle = config.use_eagle;
  config.kv.window_cap_in_step_test = config.behavior.window_cap_in_step_test;
  config.kv.adopts_group_by_group = config.behavior.adopts_group_by_group;
  config.kv.mamba_needs_go_below_zero = config.behavior.mamba_needs_go_below_zero;
  config.kv.eagle_lengthens_mamba_hits = config.behavior.eagle_lengthens_mamba_hits;
  return config;
}

// The longest sequence, of at most max_model_len tokens, that can go on in a pool of its own:
// drafts and look-ahead slots take room behind it.
std::int32_t LongestSequence(const KvCacheManager& kv, const EngineConfig& config) {
  const std::int32_t behind = config.num_speculative_tokens * (config.use_eagle ? 2 : 1);
  std::int32_t fits = 0;
  std::int32_t most = config.max_model_len;
  while (fits < most) {
    const std::int32_t tried = fits + (most - fits + 1) / 2;
    if (kv.FitsEmptyPool(std::min(tried + behind, config.max_model_len))) {
      fits = tried;
    } else {
      most = tried - 1;
    }
  }
  return fits;
}

absl::Status InvalidField(std::string_view field, std::int64_t value, std::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(field), ": ", value, ", wanted ", std::string(wanted)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(
    const EngineConfig& config, std::unique_ptr<KvConnector> connector) {
  const EngineConfig completed = Completed(config);
  if (absl::Status status = completed.Validate(); !status.ok()) return status;
  if (connector != nullptr && completed.encoder_decoder) {
    return absl::InvalidArgumentError("connector: given, wanted none with encoder_decoder");
  }
  auto scheduler = std::unique_ptr<Scheduler>(new Scheduler(completed, std::move(connector)));
  if (scheduler->connector_ != nullptr) {
    const KvConnector::Engine engine{scheduler->config_, scheduler->requests_, scheduler->kv_};
    if (absl::Status status = scheduler->connector_->Bind(engine); !status.ok()) return status;
  }
  return scheduler;
}

Scheduler::Scheduler(const EngineConfig& config, std::unique_ptr<KvConnector> connector)
    : config_(config),
      kv_(config.kv),
      hasher_(config.kv.hash_algorithm, config.kv.block_size, config.kv.hash_seed),
      waiting_(QueueName::kWaiting, config.policy, requests_),
      skipped_(QueueName::kSkipped, config.policy, requests_),
      skipped_this_pass_(QueueName::kSkippedThisPass, config.policy, requests_),
      parked_(QueueName::kParked, SchedulingPolicy::kFcfs, requests_),
      ready_(QueueName::kReady, config.policy, requests_),
      length_limit_(config.behavior.queues_impossible_requests ? config.max_model_len
                                                               : LongestSequence(kv_, config)),
      contents_(requests_),
      connector_(std::move(connector)),
      common_prefix_blocks_(kv_.num_groups()),
      accepted_per_position_(static_cast<std::size_t>(config.num_speculative_tokens)) {
  if (config.encoder_decoder) {
    encoder_cache_ = std::make_unique<EncoderDecoderCache>(
        config.encoder_cache_size, config.behavior.encoder_decoder_cache_inflates);
  } else {
    encoder_cache_ = std::make_unique<SharedEncoderCache>(config.encoder_cache_size);
  }
  for (std::uint32_t g = 0; g < kv_.num_groups(); ++g) {
    const KvGroupSpec& spec = kv_.group(g).spec();
    aligns_mamba_ |= spec.kind == AttentionKind::kMamba && spec.mamba_mode == MambaMode::kAlign;
  }
  if (config.kv_events) {
    event_log_ =
        std::make_unique<KvEventLog>(contents_, config.kv.num_blocks, config.kv.block_size);
    kv_.SetEventLog(event_log_.get());
  }
}

const BlockHashChain& Scheduler::Contents::Hashes(RequestHandle request) const {
  return requests_.request(request).hashes;
}
TokenSequence Scheduler::Contents::Tokens(RequestHandle request) const {
  return {requests_.request(request).prompt, requests_.request(request).output};
}
BlockExtraKeys Scheduler::Contents::ExtraKeys(RequestHandle handle) const {
  const Request& request = requests_.request(handle);
  return {.lora_name = request.lora_name,
          .items = request.encoder_inputs,
          .cache_salt = request.cache_salt};
}
std::int32_t Scheduler::Contents::LoraId(RequestHandle request) const {
  return requests_.state(request).lora_id;
}

absl::Status Scheduler::CheckSpec(const RequestSpec& spec) const {
  if (spec.id.empty()) return absl::InvalidArgumentError("id: empty, wanted a name");
  const std::optional<RequestHandle> known = requests_.Find(spec.id);
  const bool is_over = known && !config_.behavior.chunks_after_the_end_are_lost &&
                       !requests_.request(*known).chunks.empty() &&
                       requests_.request(*known).chunks.back().ends_session;
  if (known && (!requests_.state(*known).resumable || is_over)) {
    return absl::AlreadyExistsError(absl::StrCat("id: ", std::string(spec.id), " is in use"));
  }
  if (known && !spec.resumable)
    return absl::OkStatus();  // the end of a session: nothing else is read
  if (spec.prompt.empty())
    return absl::InvalidArgumentError("prompt: empty, wanted at least one token");
  if (spec.prompt.size() > static_cast<std::size_t>(kMaxTokens)) {
    return InvalidField("prompt", static_cast<std::int64_t>(spec.prompt.size()),
                        "at most 536870912 tokens");
  }
  for (std::size_t i = 0; i < spec.prompt.size(); ++i) {
    if (spec.prompt[i] < 0)
      return InvalidField(absl::StrCat("prompt[", i, "]"), spec.prompt[i], "a token id");
  }
  if (!spec.pooling && (spec.max_tokens < 1 || spec.max_tokens > kMaxTokens)) {
    return InvalidField("max_tokens", spec.max_tokens, "1 to 536870912");
  }
  if (!spec.pooling && (spec.min_tokens < 0 || spec.min_tokens > spec.max_tokens)) {
    return InvalidField("min_tokens", spec.min_tokens,
                        absl::StrCat("0 to max_tokens ", spec.max_tokens));
  }
  if (spec.eos_token_id && *spec.eos_token_id < 0)
    return InvalidField("eos", *spec.eos_token_id, "a token id");
  for (TokenId token : spec.stop_token_ids) {
    if (token < 0) return InvalidField("stop_token_ids", token, "a token id");
  }
  if (!std::isfinite(spec.arrival_time))
    return absl::InvalidArgumentError("arrival: not finite, wanted seconds");
  if (absl::Status status = CheckParts(spec); !status.ok()) return status;
  if (connector_ != nullptr && spec.kv_transfer_params != nullptr) {
    if (absl::Status status = connector_->CheckParams(*spec.kv_transfer_params); !status.ok())
      return status;
  }
  if (known && !config_.behavior.queues_impossible_requests &&
      requests_.state(*known).status == RequestStatus::kWaitingForStreamingRequest &&
      !FitsSession(*known, spec.prompt.size())) {
    return absl::OutOfRangeError(absl::StrCat(
        "prompt: ", spec.prompt.size(), " tokens more than the session's ",
        requests_.state(*known).num_tokens, " can never run, ", length_limit_, " fit"));
  }
  if (!known && !config_.behavior.queues_impossible_requests) {
    const auto prompt = static_cast<std::int64_t>(spec.prompt.size());
    if (prompt > config_.max_model_len) {
      return absl::OutOfRangeError(absl::StrCat(
          "prompt: ", prompt, " tokens can never run, max_model_len is ", config_.max_model_len));
    }
    if (prompt > length_limit_) {
      return absl::OutOfRangeError(absl::StrCat("prompt: ", prompt,
                                                " tokens can never run, the KV cache holds ",
                                                length_limit_, " of one request"));
    }
  }
  return absl::OkStatus();
}

absl::Status Scheduler::CheckParts(const RequestSpec& spec) const {
  if (spec.lora_id < 0 || (spec.lora_id > 0 && config_.max_loras == 0)) {
    return InvalidField("lora", spec.lora_id,
                        config_.max_loras == 0 ? "none, since max_loras is 0" : "an adapter id");
  }
  if (!spec.encoder_inputs.empty() && config_.encoder_cache_size == 0) {
    return InvalidField("encoder_inputs", static_cast<std::int64_t>(spec.encoder_inputs.size()),
                        "none, since encoder_cache_size is 0");
  }
  std::int64_t end = 0;
  for (std::size_t i = 0; i < spec.encoder_inputs.size(); ++i) {
    const MultimodalItem& item = spec.encoder_inputs[i];
    const std::string field = absl::StrCat("encoder_inputs[", i, "]");
    if (item.offset < end)
      return InvalidField(field + ".offset", item.offset, absl::StrCat("at least ", end));
    if (item.length < 1) return InvalidField(field + ".length", item.length, "at least 1");
    end = std::int64_t{item.offset} + item.length;
    if (!config_.encoder_decoder && end > static_cast<std::int64_t>(spec.prompt.size())) {
      return InvalidField(
          field, end, absl::StrCat("an end within the prompt's ", spec.prompt.size(), " tokens"));
    }
    if (item.length > config_.encoder_cache_size || item.length > config_.encoder_budget) {
      return InvalidField(field + ".length", item.length,
                          absl::StrCat("at most encoder_budget ", config_.encoder_budget,
                                       " and encoder_cache_size ", config_.encoder_cache_size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RequestHandle> Scheduler::AddRequest(const RequestSpec& spec, Seconds now) {
  if (absl::Status status = CheckSpec(spec); !status.ok()) return status;
  if (const std::optional<RequestHandle> session = requests_.Find(spec.id))
    return ContinueSession(*session, spec, now);
  const RequestHandle handle = requests_.Insert(spec.id);
  kv_.Reserve(requests_.num_handles());
  RequestState& state = requests_.state(handle);
  state.num_tokens = state.num_prompt_tokens = static_cast<std::int32_t>(spec.prompt.size());
  state.max_tokens = spec.pooling ? 1 : spec.max_tokens;
  state.min_tokens = spec.pooling ? 0 : spec.min_tokens;
  state.eos_token_id = spec.eos_token_id.value_or(kNoToken);
  state.has_stop_tokens = !spec.stop_token_ids.empty();
  state.has_repetition = spec.repetition.has_value();
  state.lora_id = spec.lora_id;
  state.has_encoder_inputs = !spec.encoder_inputs.empty();
  state.resumable = spec.resumable;
  state.pooling = spec.pooling;
  state.has_grammar = spec.waits_for_grammar;
  state.grammar_ready = !spec.waits_for_grammar;
  if (spec.waits_for_grammar) state.status = RequestStatus::kWaitingForStructuredOutputGrammar;
  Request& request = requests_.request(handle);
  request.cache_salt.assign(spec.cache_salt);
  request.arrival_time = spec.arrival_time;
  request.priority = spec.priority;
  request.prompt.assign(spec.prompt.begin(), spec.prompt.end());
  request.stop_token_ids.assign(spec.stop_token_ids.begin(), spec.stop_token_ids.end());
  request.repetition = spec.repetition.value_or(RepetitionDetection{});
  request.prefill_stats = PrefillStats{};
  request.stop_cause = StopCause{};
  request.skip_reading_prefix_cache = spec.skip_reading_prefix_cache;
  request.lora_name.assign(spec.lora_id > 0 ? spec.lora_name : std::string_view());
  request.encoder_inputs.assign(spec.encoder_inputs.begin(), spec.encoder_inputs.end());
  request.kv_transfer_params = spec.kv_transfer_params;
  (IsBlocked(state.status) ? skipped_ : waiting_).Add(handle);
  RecordEvent(handle, RequestEvent::Kind::kQueued, now);
  return handle;
}

void Scheduler::SetDraftTokens(RequestHandle handle, std::span<const TokenId> drafts) {
  RequestState& state = requests_.state(handle);
  if (IsFinished(state.status)) return;
  Request& request = requests_.request(handle);
  request.drafts.clear();
  if (!state.is_prefill_chunk) request.drafts.assign(drafts.begin(), drafts.end());
  state.num_draft_tokens = static_cast<std::int32_t>(request.drafts.size());
}

std::span<const RequestHandle> Scheduler::Abort(std::span<const std::string_view> ids,
                                                Seconds now) {
  aborted_.clear();
  for (std::string_view id : ids) {
    if (const std::optional<RequestHandle> handle = requests_.Find(id)) aborted_.push_back(*handle);
  }
  // One after the other in the order of AddRequest, whatever order the caller names them in
  // (DET-2).
  const auto added_before = [this](RequestHandle a, RequestHandle b) {
    return requests_.request(a).sequence < requests_.request(b).sequence;
  };
  std::sort(aborted_.begin(), aborted_.end(), added_before);
  aborted_.erase(std::unique(aborted_.begin(), aborted_.end()), aborted_.end());
  std::erase_if(aborted_,
                [this](RequestHandle r) { return IsFinished(requests_.state(r).status); });
  bool any_running = false;
  for (RequestHandle handle : aborted_) {
    if (requests_.state(handle).status == RequestStatus::kRunning) {
      any_running = true;
    } else {
      if (requests_.state(handle).status == RequestStatus::kWaitingForStreamingRequest)
        --num_waiting_for_streaming_;
      RemoveFromQueue(handle);
    }
    FinishRequest(handle, RequestStatus::kFinishedAborted, now);
  }
  if (any_running) {
    std::erase_if(running_,
                  [this](RequestHandle r) { return IsFinished(requests_.state(r).status); });
  }
  return aborted_;
}

absl::StatusOr<bool> Scheduler::ResetPrefixCache(bool preempt_running, Seconds now) {
  if (preempt_running) {
    while (
        !running_
             .empty()) {  // from the end, so that the queue's front has the running order (RST-2)
      const RequestHandle handle = running_.back();
      running_.pop_back();
      Preempt(handle, now);
      if (config_.behavior.late_outputs_count_as_present) {
        requests_.state(handle).num_output_placeholders = 0;
        requests_.state(handle).discard_latest_async_tokens = true;
      } else {
        SetBack(handle, LateOutputs::kDrop);
      }
    }
  }
  const bool reset = kv_.ResetPrefixCache();
  if (reset) prefix_cache_stats_.reset = true;
  if (!reset && preempt_running) {
    return absl::FailedPreconditionError(
        "Failed to reset KV cache even when all the running requests are preempted and moved to "
        "the waiting queue. This is "
        "likely due to the presence of running requests waiting for remote KV transfer, which i");
  }
  return reset;
}

std::size_t Scheduler::num_unfinished() const {
  switch (pause_state_) {
    case PauseState::kPausedAll:
      return 0;
    case PauseState::kPausedNew:
      return running_.size() + (config_.behavior.kv_holders_wait_in_line
                                    ? 0
                                    : parked_.size() + ready_.size() - num_waiting_for_streaming_);
    case PauseState::kUnpaused:
      break;
  }
  return running_.size() + num_waiting() - num_waiting_for_streaming_;
}

std::vector<RequestHandle> Scheduler::Skipped() const {
  std::vector<RequestHandle> order = ready_.Order();
  for (const RequestQueue* queue : {&parked_, &skipped_}) {
    const std::vector<RequestHandle> part = queue->Order();
    order.insert(order.end(), part.begin(), part.end());
  }
  return order;
}

void Scheduler::RemoveFromQueue(RequestHandle request) {
  // Upstream filters both queues, which restores the order of both heaps.
  std::erase_if(echoes_, [&](RequestHandle echo) {
    if (requests_.Resolve(echo) != request) return false;
    if (skipped_.Contains(echo)) skipped_.Remove(echo);
    return true;
  });
  QueueOf(request)->Remove(request);
  waiting_.RestoreOrder();
  skipped_.RestoreOrder();
}

RequestQueue* Scheduler::QueueOf(RequestHandle request) {
  for (RequestQueue* queue : {&waiting_, &skipped_, &parked_, &ready_}) {
    if (queue->Contains(request)) return queue;
  }
  return nullptr;
}

void Scheduler::Park(RequestHandle request) {
  (config_.behavior.kv_holders_wait_in_line ? skipped_ : parked_).Add(request);
}

void Scheduler::Unpark(RequestHandle request) {
  if (!parked_.Contains(request)) return;
  parked_.Remove(request);
  ready_.Add(request);
}

void Scheduler::SetBack(RequestHandle handle, LateOutputs late) {
  if (config_.behavior.late_outputs_count_as_present) return;
  RequestState& state = requests_.state(handle);
  state.stale_steps = static_cast<std::int16_t>(state.steps_in_flight);
  if (late == LateOutputs::kDrop) state.dropped_steps = state.stale_steps;
  state.num_output_placeholders = 0;
  state.num_draft_tokens = 0;
  requests_.request(handle).drafts.clear();
}

std::span<const ScheduledRequest> Scheduler::oldest_outstanding() const {
  if (outstanding_.empty()) return {};
  return outstanding_.front();
}

void Scheduler::RecordEvent(RequestHandle request, RequestEvent::Kind kind, Seconds now) {
  requests_.request(request).events.push_back({kind, now});
  requests_.state(request).has_events = true;
}

void Scheduler::ExtendHashes(RequestHandle handle) {
  RequestState& state = requests_.state(handle);
  if (state.num_tokens < state.next_hash_tokens) return;
  if (!config_.kv.enable_prefix_caching && connector_ == nullptr) return;
  Request& request = requests_.request(handle);
  if (state.next_hash_tokens == 0 && !spare_hashes_.empty()) {
    request.hashes = std::move(spare_hashes_.back());
    spare_hashes_.pop_back();
  }
  hasher_.Extend(contents_.Tokens(handle), contents_.ExtraKeys(handle), request.hashes);
  state.next_hash_tokens =
      (static_cast<std::int32_t>(request.hashes.hashes.size()) + 1) * hasher_.block_size();
}

void Scheduler::Preempt(RequestHandle handle, Seconds now) {
  RequestState& state = requests_.state(handle);
  TALLY_CHECK(!IsFinished(state.status) && !IsBlocked(state.status),
              "request %u is preempted in status %d", Index(handle),
              static_cast<int>(state.status));
  kv_.Free(handle);
  ReleaseEncoderInputs(handle);
  state.status = RequestStatus::kPreempted;
  state.num_computed_tokens = 0;
  state.num_draft_tokens = 0;
  requests_.request(handle).drafts.clear();
  ++state.num_preemptions;
  SetBack(handle, LateOutputs::kDeliver);
  RecordEvent(handle, RequestEvent::Kind::kPreempted, now);
  waiting_.Prepend(handle);
}

std::shared_ptr<const nlohmann::json> Scheduler::FinishRequest(RequestHandle handle,
                                                               RequestStatus status, Seconds now) {
  RequestState& state = requests_.state(handle);
  // Its blocks are written to until the workers say that they are done (FIN-4).
  state.awaits_receive =
      state.status == RequestStatus::kWaitingForRemoteKvs && !state.load_finished;
  state.status = status;
  std::shared_ptr<const nlohmann::json> params;
  if (connector_ != nullptr) {
    kv_.RemoveSkipped(handle, state.num_computed_tokens);
    absl::StatusOr<FinishVerdict> verdict = connector_->RequestFinished(handle, now);
    if (!verdict.ok()) {
      fault_ = verdict.status();
    } else {
      state.awaits_send = verdict->delay_free;
      params = std::move(verdict->kv_transfer_params);
    }
  }
  ReleaseEncoderInputs(handle);
  finished_.push_back(handle);
  if (state.free_delayed()) {
    ++num_delayed_;
  } else {
    ReleaseFinished(handle);
  }
  return params;
}

void Scheduler::ReleaseFinished(RequestHandle handle) {
  kv_.Free(handle);
  requests_.Forget(handle);
  if (requests_.request(handle).queue != QueueName::kNone) return;  // BUG-5: it will be looked at
  // The prompt can be large and its successor's has another size; the others are worth keeping.
  Request& request = requests_.request(handle);
  std::vector<TokenId>().swap(request.prompt);
  request.drafts.clear();
  request.events.clear();
  request.encoder_inputs.clear();
  request.chunks.clear();
  request.kv_transfer_params.reset();
  if (request.output.capacity() > 0) {
    request.output.clear();
    spare_outputs_.push_back(std::move(request.output));
  }
  if (request.hashes.hashes.capacity() > 0) {
    request.hashes.Clear();
    spare_hashes_.push_back(std::move(request.hashes));
  }
}

void Scheduler::CheckInvariants() const {
  std::vector<RequestHandle> handles(requests_.num_handles());
  for (std::uint32_t i = 0; i < handles.size(); ++i) handles[i] = RequestHandle{i};
  kv_.CheckInvariants(handles);
  encoder_cache_->CheckInvariants();

  const std::vector<RequestHandle> waiting = waiting_.Order();
  const std::vector<RequestHandle> skipped = Skipped();
  TALLY_CHECK(running_.size() <= static_cast<std::size_t>(config_.max_num_seqs), "%zu running",
              running_.size());
  std::size_t queued = 0;
  for (RequestHandle handle : requests_.InOrder()) {
    const RequestState& state = requests_.state(handle);
    const auto in = [handle](const auto& list) {
      return std::count(list.begin(), list.end(), handle);
    };
    TALLY_CHECK(in(running_) + in(waiting) + in(skipped) == (IsFinished(state.status) ? 0 : 1),
                "request %u of status %d is in %td lists", Index(handle),
                static_cast<int>(state.status), in(running_) + in(waiting) + in(skipped));
    TALLY_CHECK((state.status == RequestStatus::kRunning) == (in(running_) == 1), "request %u",
                Index(handle));
    TALLY_CHECK(!IsBlocked(state.status) || in(skipped) == 1,
                "blocked request %u does not wait aside", Index(handle));
    queued += IsFinished(state.status) ? 0 : 1;
    const Request& request = requests_.request(handle);
    TALLY_CHECK(
        static_cast<std::size_t>(state.num_tokens) == request.prompt.size() + request.output.size(),
        "request %u: %d tokens", Index(handle), state.num_tokens);
    TALLY_CHECK(static_cast<std::size_t>(state.num_prompt_tokens) == request.prompt.size(),
                "request %u", Index(handle));
    // The next chunk of a session, or a load that is over.
    const bool holds_blocks = state.num_computed_tokens > 0 && in(skipped) + in(waiting) == 1;
    if ((state.status == RequestStatus::kPreempted || state.status == RequestStatus::kWaiting) &&
        !holds_blocks) {
      TALLY_CHECK(state.num_computed_tokens == 0, "waiting request %u has %d computed",
                  Index(handle), state.num_computed_tokens);
      TALLY_CHECK(state.status != RequestStatus::kPreempted || state.num_preemptions > 0,
                  "request %u", Index(handle));
      for (std::uint32_t g = 0; !state.resumable && g < kv_.num_groups(); ++g) {
        TALLY_CHECK(kv_.Table(handle, g).empty(), "waiting request %u holds blocks", Index(handle));
      }
    }
    if (state.status == RequestStatus::kRunning && outstanding_.empty() &&
        config_.num_speculative_tokens == 0 && !config_.async_scheduling && !state.resumable) {
      // Equal after a step that brought no token for a request that samples.
      TALLY_CHECK(
          state.num_computed_tokens <= state.num_tokens && state.num_output_placeholders == 0,
          "request %u: computed %d of %d", Index(handle), state.num_computed_tokens,
          state.num_tokens);
    }
  }
  TALLY_CHECK(queued == running_.size() + waiting.size() + skipped.size(),
              "a forgotten request is queued");
}

}  // namespace tally
