// Scheduler::Schedule: first the requests that run, then those that wait (scheduler.md section 3).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/core/scheduler.h"

namespace tally {
namespace {

// Room for outputs that a request gets at its first admission, so that decoding does not allocate;
// requests with longer outputs grow their buffer a few times.
constexpr std::int32_t kOutputReserve = 4096;
// Far more stages than any pipeline has; keeps a request's count of late steps small.
constexpr std::size_t kMaxOutstandingSteps = 1024;

}  // namespace

absl::StatusOr<StepPlan> Scheduler::Schedule(Seconds now) {
  if (outstanding_.size() >= kMaxOutstandingSteps) {
    return absl::FailedPreconditionError(absl::StrCat(
        "steps: ", outstanding_.size(), " are outstanding, wanted an update before the next"));
  }
  BeginStep();
  ScheduleRunning(now);
  if (fault_.ok() && config_.max_loras > 0 && !LookAtLoras())
    fault_ = absl::InternalError("AssertionError: ");
  // Who was just preempted must not be admitted again for the room that he made (SCH-20).
  if (fault_.ok() && preempted_.empty()) AdmitWaiting(now);
  if (!fault_.ok()) return std::exchange(fault_, absl::OkStatus());
  StepPlan plan = MakePlan();
  if (connector_ != nullptr) {
    auto metadata = connector_->BuildConnectorMeta(plan);
    if (!metadata.ok()) return metadata.status();
    connector_metadata_ = *std::move(metadata);
    plan.connector = connector_metadata_.get();
  }
  AdvanceScheduled();
  return plan;
}

void Scheduler::BeginStep() {
  retired_.insert(retired_.end(), reported_finished_.begin(), reported_finished_.end());
  std::erase_if(retired_, [this](RequestHandle request) {
    if (requests_.state(request).steps_in_flight > 0 || requests_.state(request).free_delayed() ||
        requests_.request(request).queue != QueueName::kNone) {
      return false;
    }
    requests_.Recycle(request);
    return true;
  });
  reported_finished_.clear();
  std::swap(reported_finished_, finished_);

  token_budget_ = pause_state_ == PauseState::kPausedAll ? 0 : config_.max_num_batched_tokens;
  scheduled_.clear();
  first_new_block_.clear();
  draft_tokens_.clear();
  encoder_inputs_.clear();
  encoder_budget_ = config_.encoder_budget;
  preempted_.clear();
  kv_.BeginStep();
}

// ---- Running requests ---------------------------------------------------------------------------

void Scheduler::ScheduleRunning(Seconds now) {
  std::size_t position = 0;
  while (position < running_.size() && token_budget_ > 0) {
    const RequestHandle request = running_[position];
    const RequestState& state = requests_.state(request);
    std::int32_t num_tokens = TokensForRunning(state);
    chosen_inputs_.clear();
    if (state.has_encoder_inputs) {
      num_tokens = ChooseEncoderInputs(request, state.num_computed_tokens, num_tokens,
                                       config_.use_eagle ? 1 : 0);
    }
    if (aligns_mamba_) num_tokens = AlignTokens(state, state.num_computed_tokens, num_tokens);
    if (num_tokens == 0) {
      ++position;
      continue;
    }
    ScheduledRequest entry{
        .request = request,
        .num_tokens = num_tokens,
        .num_computed_tokens = state.num_computed_tokens,
        .num_output_tokens = state.num_output_tokens() + state.num_output_placeholders};
    if (!AllocateForRunning(request, entry, position, now)) {
      if (!fault_.ok()) return;
      const bool goes_on = config_.policy == SchedulingPolicy::kPriority &&
                           !config_.behavior.self_preemption_ends_priority_pass;
      if (!goes_on) return;
      continue;
    }
    if (state.num_draft_tokens > 0) TakeDrafts(request, entry);
    if (!chosen_inputs_.empty()) ScheduleChosenInputs(request);
    scheduled_.push_back(entry);
    token_budget_ -= num_tokens;
    ++position;
  }
}

std::int32_t Scheduler::TokensForRunning(const RequestState& state) const {
  const std::int32_t placeholders = state.num_output_placeholders;
  // Even if all outstanding drafts are rejected the request reaches its limit: there is nothing
  // left to schedule (SCH-4).
  if (placeholders > 0 && std::int64_t{state.num_computed_tokens} + 2 - placeholders >=
                              std::int64_t{state.num_prompt_tokens} + state.max_tokens) {
    return 0;
  }
  std::int32_t tokens =
      state.num_tokens + state.num_draft_tokens + placeholders - state.num_computed_tokens;
  if (config_.long_prefill_token_threshold > 0)
    tokens = std::min(tokens, config_.long_prefill_token_threshold);
  tokens = std::min(tokens, token_budget_);
  std::int32_t end = config_.max_model_len - 1;
  if (!config_.behavior.length_clamp_cuts_known_tokens) end = std::max(end, state.num_tokens);
  tokens = std::min(tokens, end - state.num_computed_tokens);
  return config_.behavior.negative_schedules ? tokens : std::max(tokens, 0);
}

bool Scheduler::AllocateForRunning(RequestHandle request, ScheduledRequest& entry,
                                   std::size_t& position, Seconds now) {
  const RequestState& state = requests_.state(request);
  const std::int32_t lookahead = config_.use_eagle ? config_.num_speculative_tokens : 0;
  const std::int32_t end = state.num_computed_tokens + entry.num_tokens;
  if (kv_.HoldsAlready(request, std::min(end + lookahead, config_.max_model_len),
                       std::min(end, state.num_tokens), state.num_computed_tokens)) {
    return true;
  }
  while (true) {
    const AllocationRequest wanted{.computed = state.num_computed_tokens,
                                   .known = state.num_tokens,
                                   .scheduled = entry.num_tokens,
                                   .lookahead = lookahead};
    const std::span<std::uint32_t> row = NewBlocksRow();
    switch (kv_.Allocate(request, wanted, requests_.request(request).hashes.hashes, row)) {
      case AllocationResult::kAllocated: {
        bool added = false;
        for (std::uint32_t g = 0; g < kv_.num_groups(); ++g)
          added |= row[g] < kv_.Table(request, g).size();
        if (added) {
          entry.new_blocks =
              static_cast<std::uint32_t>(first_new_block_.size() / kv_.num_groups()) - 1;
        } else {
          first_new_block_.resize(first_new_block_.size() - kv_.num_groups());
        }
        return true;
      }
      case AllocationResult::kPoolExhausted:
        fault_ = PoolExhausted();
        return false;
      case AllocationResult::kNoSpace:
        first_new_block_.resize(first_new_block_.size() - kv_.num_groups());
        break;
    }
    const RequestHandle victim = TakeVictim(position);
    Preempt(victim, now);
    preempted_.push_back(victim);
    if (victim == request) return false;
  }
}

RequestHandle Scheduler::TakeVictim(std::size_t& position) {
  if (config_.policy == SchedulingPolicy::kFcfs) {
    const RequestHandle victim = running_.back();
    running_.pop_back();
    return victim;
  }
  // The least urgent: the greatest priority, then the latest arrival, the first of equals (SCH-12).
  const auto less_urgent = [this](RequestHandle a, RequestHandle b) {
    const Request& left = requests_.request(a);
    const Request& right = requests_.request(b);
    return std::pair(left.priority, left.arrival_time) <
           std::pair(right.priority, right.arrival_time);
  };
  const auto chosen = std::max_element(running_.begin(), running_.end(), less_urgent);
  const RequestHandle victim = *chosen;
  const auto place = static_cast<std::size_t>(chosen - running_.begin());
  running_.erase(chosen);
  const bool was_scheduled = WithdrawFromStep(victim);
  const bool shifts =
      config_.behavior.unscheduled_victim_skips_a_request ? was_scheduled : place < position;
  if (shifts) --position;
  return victim;
}

bool Scheduler::WithdrawFromStep(RequestHandle victim) {
  const auto entry =
      std::find_if(scheduled_.begin(), scheduled_.end(),
                   [victim](const ScheduledRequest& e) { return e.request == victim; });
  if (entry == scheduled_.end()) return false;
  token_budget_ += entry->num_tokens;
  scheduled_.erase(entry);
  std::erase_if(encoder_inputs_, [&](const ScheduledEncoderInput& scheduled) {
    if (scheduled.request != victim) return false;
    encoder_budget_ +=
        requests_.request(victim).encoder_inputs[static_cast<std::size_t>(scheduled.input)].length;
    return true;
  });
  return true;
}

void Scheduler::TakeDrafts(RequestHandle handle, ScheduledRequest& entry) {
  RequestState& state = requests_.state(handle);
  Request& request = requests_.request(handle);
  // Drafts stand behind the known tokens; as many as the step reaches are verified, the others are
  // dropped (SCH-15).
  const std::int32_t reached = entry.num_tokens + state.num_computed_tokens - state.num_tokens -
                               state.num_output_placeholders;
  const std::int32_t taken = std::clamp(reached, 0, state.num_draft_tokens);
  entry.num_draft_tokens = taken;
  entry.first_draft = static_cast<std::uint32_t>(draft_tokens_.size());
  draft_tokens_.insert(draft_tokens_.end(), request.drafts.begin(), request.drafts.begin() + taken);
  request.drafts.clear();
  state.num_draft_tokens = 0;
}

std::span<std::uint32_t> Scheduler::NewBlocksRow() {
  first_new_block_.resize(first_new_block_.size() + kv_.num_groups());
  return std::span(first_new_block_).last(kv_.num_groups());
}

// ---- Waiting requests ---------------------------------------------------------------------------

void Scheduler::AdmitWaiting(Seconds now) {
  const auto has_room = [this] {
    return token_budget_ > 0 && running_.size() < static_cast<std::size_t>(config_.max_num_seqs);
  };
  if (!ready_.empty() && !AdmitReady(now)) return;
  if (pause_state_ != PauseState::kUnpaused) return;
  while (has_room()) {
    // Who was passed over before goes first; by priority the more urgent head does.
    RequestQueue* queue = skipped_.empty() ? &waiting_ : &skipped_;
    if (config_.policy == SchedulingPolicy::kPriority && !skipped_.empty() && !waiting_.empty() &&
        RequestQueue::Before(requests_, waiting_.Front(), skipped_.Front())) {
      queue = &waiting_;
    }
    if (queue->empty() || !AdmitHead(*queue, now)) break;
  }
  skipped_.PrependAll(skipped_this_pass_);
}

std::int64_t Scheduler::BlocksWantedByPrefills() const {
  std::int64_t wanted = 0;
  const auto add = [&](RequestHandle request) {
    const RequestState& state = requests_.state(request);
    if (state.num_computed_tokens < state.num_tokens || IsBlocked(state.status))
      wanted += kv_.BlocksMissing(request, state.num_tokens);
  };
  for (RequestHandle request : running_) add(request);
  for (RequestHandle request : parked_.Order()) add(request);
  for (RequestHandle request : ready_.Order()) add(request);
  return wanted;
}

bool Scheduler::AdmitReady(Seconds now) {
  // Who holds blocks gives them back the sooner, the sooner he runs. One that does not fit does not
  // stand in the way of the others, but of all that hold none.
  bool all_fit = true;
  while (!ready_.empty() && token_budget_ > 0 &&
         running_.size() < static_cast<std::size_t>(config_.max_num_seqs)) {
    if (AdmitHead(ready_, now)) continue;
    if (!fault_.ok()) return false;
    all_fit = false;
    PassOver(ready_);
  }
  ready_.PrependAll(skipped_this_pass_);
  if (all_fit || !running_.empty()) return all_fit;
  // Nobody runs who could make room: the last of them gives up its blocks.
  const RequestHandle victim = ready_.Order().back();
  ready_.Remove(victim);
  Preempt(victim, now);
  preempted_.push_back(victim);
  return false;
}

void Scheduler::LookUpPrefix(RequestHandle handle) {
  hit_.Clear();
  const RequestState& state = requests_.state(handle);
  if (!config_.kv.enable_prefix_caching || requests_.request(handle).skip_reading_prefix_cache)
    return;
  // The last token is always computed: its logits are wanted (MGR-2).
  kv_.FindLongestHit(requests_.request(handle).hashes.hashes, state.num_tokens - 1, hit_);
  if (config_.behavior.queries_counted_per_attempt) {
    prefix_cache_stats_.Record(state.num_tokens, hit_.num_tokens, state.num_preemptions > 0);
  }
}

bool Scheduler::Promote(RequestHandle handle) {
  RequestState& state = requests_.state(handle);
  if (state.status == RequestStatus::kWaitingForRemoteKvs && state.load_finished) {
    TakeLoad(handle);
    state.status = state.num_preemptions > 0 ? RequestStatus::kPreempted : RequestStatus::kWaiting;
    return true;
  }
  if (state.status != RequestStatus::kWaitingForStructuredOutputGrammar || !state.grammar_ready)
    return false;
  state.status = RequestStatus::kWaiting;
  return true;
}

void Scheduler::PassOver(RequestQueue& queue) {
  const RequestHandle entry = queue.Front();
  queue.PopFront();
  skipped_this_pass_.Prepend(entry);
}

bool Scheduler::LookUp(RequestHandle handle, ExternalTokens& external) {
  LookUpPrefix(handle);
  if (connector_ != nullptr && !MatchExternal(handle, external)) return false;
  const RequestState& state = requests_.state(handle);
  // Recorded at every attempt, so that what is delivered is the admission that led to the first
  // output (PF-2, PF-3).
  if (state.has_prefill_stats &&
      (state.num_preemptions == 0 || config_.behavior.prefill_stats_overwritten_after_preemption)) {
    if (hit_.num_tokens + external.num_tokens > state.num_prompt_tokens) {
      fault_ = absl::InternalError("AssertionError: ");
      return false;
    }
    requests_.request(handle).prefill_stats =
        PrefillStats::Of(state.num_prompt_tokens, hit_.num_tokens, external.num_tokens);
  }
  return true;
}

bool Scheduler::LookAtLoras() {
  lora_ids_.clear();
  const auto add = [this](RequestHandle request) {
    const std::int32_t id = requests_.state(request).lora_id;
    if (id > 0 && std::find(lora_ids_.begin(), lora_ids_.end(), id) == lora_ids_.end())
      lora_ids_.push_back(id);
  };
  if (config_.behavior.lora_limit_counts_scheduled_only) {
    for (const ScheduledRequest& entry : scheduled_) add(entry.request);
  } else {
    for (RequestHandle request : running_) add(request);
  }
  return lora_ids_.size() <= static_cast<std::size_t>(config_.max_loras);
}

bool Scheduler::LoraFits(const RequestState& state) const {
  return state.lora_id == 0 || lora_ids_.size() < static_cast<std::size_t>(config_.max_loras) ||
         std::find(lora_ids_.begin(), lora_ids_.end(), state.lora_id) != lora_ids_.end();
}

std::int32_t Scheduler::AlignTokens(const RequestState& state, std::int32_t computed,
                                    std::int32_t num_tokens) const {
  if (computed >= std::max(state.num_prompt_tokens, state.num_tokens - 1)) return num_tokens;
  const std::int32_t size = config_.kv.block_size;
  std::int32_t end = state.num_tokens / size * size;  // of the last state that can be cached
  if (config_.use_eagle) end = std::max(end - size, 0);
  if (computed + num_tokens < end) return num_tokens / size * size;
  if (computed < end) return std::min(num_tokens, end - computed);
  return num_tokens;
}

bool Scheduler::AdmitHead(RequestQueue& queue, Seconds now) {
  const RequestHandle handle = requests_.Resolve(queue.Front());
  RequestState& state = requests_.state(handle);
  // A preempted request is admitted again when the outputs that were under way have come.
  const bool awaits_outputs = state.stale_steps > state.dropped_steps;
  if ((IsBlocked(state.status) && !Promote(handle)) || !LoraFits(state) || awaits_outputs) {
    PassOver(queue);
    return true;
  }
  ExtendHashes(handle);
  Request& request = requests_.request(handle);
  hit_.Clear();
  // Else its prefix was loaded, or it is the next chunk of a session: it holds its blocks.
  const bool fresh = state.num_computed_tokens == 0 &&
                     (config_.behavior.one_token_load_is_repeated || kv_.Table(handle, 0).empty());
  ExternalTokens external;
  if (fresh && !LookUp(handle, external)) {
    if (!fault_.ok()) return false;
    PassOver(queue);
    return true;
  }

  const std::int32_t computed = state.num_computed_tokens + hit_.num_tokens + external.num_tokens;
  std::int32_t num_tokens = 0;
  chosen_inputs_.clear();
  if (!external.load_async) {
    num_tokens = state.num_tokens - computed;
    if (config_.long_prefill_token_threshold > 0)
      num_tokens = std::min(num_tokens, config_.long_prefill_token_threshold);
    if (!config_.enable_chunked_prefill && num_tokens > token_budget_) return false;
    num_tokens = std::min(num_tokens, token_budget_);
    if (num_tokens <= 0) {
      // A session that stopped in the middle of accepted drafts has more computed than known tokens
      // (BUG-14); a connector that loads in the step holds the whole sequence (PF-12).
      fault_ = absl::InternalError("AssertionError: ");
      return false;
    }
    if (state.has_encoder_inputs) {
      num_tokens = ChooseEncoderInputs(handle, computed, num_tokens, config_.use_eagle ? 1 : 0);
      if (num_tokens == 0) return false;
    }
  }
  if (aligns_mamba_) {
    if (external.num_tokens > 0) {  // SCH-30
      fault_ = absl::InternalError("AssertionError: External KV connector is not verified yet");
      return false;
    }
    num_tokens = AlignTokens(state, computed, num_tokens);
    if (num_tokens == 0) return false;
  }
  const std::int32_t encoder = config_.encoder_decoder ? ChosenEmbeddings(request) : 0;
  const bool beside_prefills =
      external.load_async && !config_.behavior.loads_ignore_running_prefills;
  if ((config_.scheduler_reserve_full_isl || beside_prefills) &&
      !kv_.FitsWholeSequence(handle, state.num_tokens, state.num_computed_tokens, hit_,
                             external.num_tokens, encoder,
                             beside_prefills ? BlocksWantedByPrefills() : 0)) {
    ReleaseEncoderInputs(handle);
    return false;
  }
  const AllocationRequest wanted{
      .computed = state.num_computed_tokens,
      .known = state.num_tokens,
      .scheduled = num_tokens,
      .lookahead = !fresh && config_.use_eagle ? config_.num_speculative_tokens : 0,
      .hit = &hit_,
      .external = external.num_tokens,
      .delay_registration = external.load_async,
      .encoder = encoder};
  const std::span<std::uint32_t> row = NewBlocksRow();
  switch (kv_.Allocate(handle, wanted, request.hashes.hashes, row)) {
    case AllocationResult::kAllocated:
      break;
    case AllocationResult::kNoSpace:
      first_new_block_.resize(first_new_block_.size() - kv_.num_groups());
      ReleaseEncoderInputs(handle);
      return false;
    case AllocationResult::kPoolExhausted:
      fault_ = PoolExhausted();
      return false;
  }
  std::fill(row.begin(), row.end(), 0);  // the worker gets the whole table

  if (fresh && !config_.behavior.queries_counted_per_attempt && config_.kv.enable_prefix_caching &&
      !request.skip_reading_prefix_cache) {
    prefix_cache_stats_.Record(state.num_tokens, hit_.num_tokens, state.num_preemptions > 0);
  }
  if (connector_ != nullptr) {
    if (absl::Status status = connector_->UpdateStateAfterAlloc(handle, external.num_tokens);
        !status.ok()) {
      fault_ = status;
      return false;
    }
    const std::int32_t queries = state.num_tokens - hit_.num_tokens;
    if (fresh && queries > 0)
      connector_stats_.Record(queries, external.num_tokens, state.num_preemptions > 0);
  }
  queue.PopFront();
  if (external.load_async) {
    first_new_block_.resize(first_new_block_.size() - kv_.num_groups());
    if (config_.behavior.kv_holders_wait_in_line) {
      skipped_this_pass_.Prepend(handle);
    } else {
      Park(handle);
    }
    state.status = RequestStatus::kWaitingForRemoteKvs;
    state.load_finished = state.load_failed = false;
    state.num_computed_tokens = computed;  // from the moment the load ends (SCH-36)
    return true;
  }
  if (state.status != RequestStatus::kWaiting && state.status != RequestStatus::kPreempted) {
    fault_ = absl::InternalError(
        absl::StrCat("RuntimeError: Invalid request status: ", UpperStatusName(state.status)));
    return false;
  }
  running_.push_back(handle);
  RecordEvent(handle, RequestEvent::Kind::kScheduled, now);
  if (request.output.capacity() == 0) {
    if (!spare_outputs_.empty()) {
      request.output = std::move(spare_outputs_.back());
      spare_outputs_.pop_back();
    }
    request.output.reserve(static_cast<std::size_t>(std::min(state.max_tokens, kOutputReserve)));
  }
  if (state.lora_id > 0 &&
      std::find(lora_ids_.begin(), lora_ids_.end(), state.lora_id) == lora_ids_.end()) {
    lora_ids_.push_back(state.lora_id);
  }
  scheduled_.push_back(
      {.request = handle,
       .num_tokens = num_tokens,
       .num_computed_tokens = computed,
       .num_output_tokens = state.num_output_tokens() + state.num_output_placeholders,
       .new_blocks = static_cast<std::uint32_t>(first_new_block_.size() / kv_.num_groups()) - 1,
       .kind = state.status == RequestStatus::kPreempted ? ScheduledRequest::Kind::kResumed
                                                         : ScheduledRequest::Kind::kNew});
  if (!chosen_inputs_.empty()) ScheduleChosenInputs(handle);
  token_budget_ -= num_tokens;
  state.status = RequestStatus::kRunning;
  state.num_computed_tokens = computed;
  return true;
}

absl::Status Scheduler::PoolExhausted() const {
  const GrowthFault& fault = kv_.growth_fault();
  if (fault.missing_blocks == 0) {
    return absl::InternalError(absl::StrCat("AssertionError: num_required_blocks ",
                                            fault.wanted_length, " < len(req_blocks) ",
                                            fault.present_length));
  }
  return absl::InternalError(
      absl::StrCat("ValueError: Cannot get ", fault.missing_blocks, " free blocks from the pool"));
}

// ---- After the decisions ------------------------------------------------------------------------

void Scheduler::AdvanceScheduled() {
  for (ScheduledRequest& entry : outstanding_.back()) {
    RequestState& state = requests_.state(entry.request);
    state.num_computed_tokens += entry.num_tokens;
    ++state.steps_in_flight;
    state.is_prefill_chunk =
        state.num_computed_tokens < state.num_tokens + state.num_output_placeholders;
    entry.samples = !state.is_prefill_chunk;
    if (config_.async_scheduling && entry.samples) {
      // The next step is planned before this one's tokens are known: they count as placeholders
      // (ASY-1).
      state.num_output_placeholders += 1 + entry.num_draft_tokens;
      if (config_.num_speculative_tokens > 0) {
        state.num_draft_tokens = config_.num_speculative_tokens;
        requests_.request(entry.request)
            .drafts.assign(static_cast<std::size_t>(config_.num_speculative_tokens),
                           kDraftPlaceholder);
      }
    }
  }
}

StepPlan Scheduler::MakePlan() {
  StepPlan plan;
  for (const ScheduledRequest& entry : scheduled_) plan.num_scheduled_tokens += entry.num_tokens;
  TALLY_CHECK(plan.num_scheduled_tokens <= config_.max_num_batched_tokens && token_budget_ >= 0,
              "%d tokens scheduled", plan.num_scheduled_tokens);
  std::fill(common_prefix_blocks_.begin(), common_prefix_blocks_.end(), 0);
  if (!running_.empty()) kv_.CommonPrefixBlocks(running_.front(), common_prefix_blocks_);

  if (!spare_steps_.empty()) {
    outstanding_.push_back(std::move(spare_steps_.back()));
    spare_steps_.pop_back();
  } else {
    outstanding_.emplace_back();
  }
  outstanding_.back().swap(scheduled_);

  plan.requests = outstanding_.back();
  plan.first_new_block = first_new_block_;
  plan.num_groups = kv_.num_groups();
  plan.draft_tokens = draft_tokens_;
  plan.encoder_inputs = encoder_inputs_;
  encoder_cache_->TakeFreed(freed_encoder_hashes_);
  plan.freed_encoder_hashes = freed_encoder_hashes_;
  plan.preempted = preempted_;
  plan.finished = reported_finished_;
  plan.common_prefix_blocks = common_prefix_blocks_;
  kv_.TakeBlocksToZero(blocks_to_zero_);
  plan.blocks_to_zero = blocks_to_zero_;
  return plan;
}

}  // namespace tally
