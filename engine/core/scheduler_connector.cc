// The scheduler and its KV connector: external matches, loads that end, loads that fail, and blocks
// that are kept until their transfer is over (scheduler.md 4.4, 4.5; connectors.md section 1).
#include <algorithm>

#include "engine/base/check.h"
#include "engine/core/scheduler.h"

namespace tally {
namespace {

absl::Status AssertionFault() { return absl::InternalError("AssertionError: "); }

}  // namespace

bool Scheduler::MatchExternal(RequestHandle handle, ExternalTokens& external) {
  if (requests_.state(handle).load_ever_failed &&
      !config_.behavior.failed_loads_are_matched_again) {
    return true;
  }
  const absl::StatusOr<ExternalMatch> match =
      connector_->GetNumNewMatchedTokens(handle, hit_.num_tokens);
  if (!match.ok()) {
    fault_ = match.status();
    return false;
  }
  if (!match->num_tokens) return false;  // not known yet
  const RequestState& state = requests_.state(handle);
  external = {*match->num_tokens, match->load_async};
  if (config_.behavior.trusts_connector_matches) {
    const bool kept = external.num_tokens >= 0 &&
                      hit_.num_tokens + external.num_tokens <= state.num_tokens &&
                      (external.num_tokens > 0 || !external.load_async);
    if (!kept) fault_ = AssertionFault();
    return kept;
  }
  // A load within the step leaves a token to compute; one beside it may bring them all, and the
  // last is computed again.
  const std::int32_t most =
      std::max(0, state.num_tokens - hit_.num_tokens - (external.load_async ? 0 : 1));
  external.num_tokens = std::clamp(external.num_tokens, 0, most);
  if (external.num_tokens == 0) external.load_async = false;
  return true;
}

void Scheduler::TakeLoad(RequestHandle handle) {
  RequestState& state = requests_.state(handle);
  if (state.load_failed && state.num_computed_tokens == 0) {
    kv_.Free(handle);  // nothing arrived: it is looked up again
  } else {
    kv_.Register(handle, state.num_computed_tokens, requests_.request(handle).hashes.hashes);
  }
  if (state.load_failed) {
    state.load_ever_failed = true;
  } else if (state.num_computed_tokens == state.num_tokens) {
    --state.num_computed_tokens;  // the last token is computed for its logits
  }
  state.load_finished = state.load_failed = false;
}

std::int32_t Scheduler::TokensInUpdatedStep(RequestHandle request) const {
  for (const ScheduledRequest& entry : updated_step_) {
    if (entry.request == request) return entry.num_tokens;
  }
  return 0;
}

bool Scheduler::Truncate(RequestHandle handle, const BlockSet& invalid, BlockSet& marked) {
  RequestState& state = requests_.state(handle);
  const std::span<const BlockId> table = kv_.Table(handle, 0);
  const std::int32_t block_size = kv_.group(0).block_size();
  std::int32_t before = state.num_computed_tokens - TokensInUpdatedStep(handle);
  // Behind the known tokens are only positions of drafts and of steps to come.
  if (!config_.behavior.late_outputs_count_as_present) before = std::min(before, state.num_tokens);
  const auto end =
      std::min(table.size(), static_cast<std::size_t>(std::max(0, CeilDiv(before, block_size))));
  bool affected = false;
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < end; ++i) {
    if (!invalid.contains(table[i])) continue;
    affected = true;
    const bool marked_before = !marked.insert(table[i]).second;
    if (marked_before && config_.behavior.shared_invalid_blocks_recomputed_by_one) continue;
    if (first) continue;
    first = i;
    evicted_.insert(evicted_.end(), table.begin() + static_cast<std::ptrdiff_t>(i), table.end());
  }
  if (!affected) return false;
  state.num_computed_tokens = first ? static_cast<std::int32_t>(*first) * block_size : before;
  return true;
}

void Scheduler::HandleInvalidBlocks(std::span<const BlockId> blocks) {
  const BlockSet invalid(blocks.begin(), blocks.end());
  const bool fails = config_.load_failure_policy == LoadFailurePolicy::kFail;
  BlockSet marked;
  evicted_.clear();
  for (RequestHandle handle : Skipped()) {
    RequestState& state = requests_.state(handle);
    if (state.status != RequestStatus::kWaitingForRemoteKvs || !Truncate(handle, invalid, marked))
      continue;
    if (fails) {
      failed_.push_back(handle);
    } else {
      state.load_failed = true;  // it goes on when the workers are done with the rest
    }
  }
  // Blocks of loads that are under way are in no cache yet.
  evicted_.clear();
  marked.clear();
  for (RequestHandle handle : running_) {
    if (!Truncate(handle, invalid, marked)) continue;
    failed_.push_back(handle);
    SetBack(handle, LateOutputs::kDrop);
  }
  if (fails || !config_.behavior.failed_blocks_stay_cached) {
    std::sort(evicted_.begin(), evicted_.end());
    evicted_.erase(std::unique(evicted_.begin(), evicted_.end()), evicted_.end());
    kv_.Evict(evicted_);
  }
}

void Scheduler::FailRequests(Seconds now) {
  std::sort(failed_.begin(), failed_.end(), [this](RequestHandle a, RequestHandle b) {
    return requests_.request(a).sequence < requests_.request(b).sequence;
  });
  bool any_running = false;
  for (RequestHandle handle : failed_) {
    RequestState& state = requests_.state(handle);
    if (state.status == RequestStatus::kRunning) {
      any_running = true;
    } else {
      RemoveFromQueue(handle);
    }
    state.has_prefill_stats = false;  // an error says nothing of where the prompt came from (PF-10)
    requests_.request(handle).stop_cause = StopCause{};
    EmitOutput(handle, {}, FinishReason::kError, false);
    FinishRequest(handle, RequestStatus::kFinishedError, now);
  }
  if (any_running) {
    std::erase_if(running_,
                  [this](RequestHandle r) { return IsFinished(requests_.state(r).status); });
  }
}

void Scheduler::EndDelay(RequestHandle handle) {
  requests_.state(handle).awaits_receive = requests_.state(handle).awaits_send = false;
  --num_delayed_;
  ReleaseFinished(handle);
}

void Scheduler::TakeTransferReports(const StepOutcome& outcome) {
  const bool strict = config_.behavior.first_transfer_report_frees;
  if (absl::Status status =
          connector_->UpdateConnectorOutput(outcome.finished_sending, outcome.finished_recving);
      !status.ok()) {
    fault_ = status;
    return;
  }
  for (std::string_view id : outcome.finished_recving) {
    const std::optional<RequestHandle> handle = requests_.Find(id);
    if (handle && requests_.state(*handle).status == RequestStatus::kWaitingForRemoteKvs) {
      requests_.state(*handle).load_finished = true;
      Unpark(*handle);
    } else if (strict) {
      if (!handle || !IsFinished(requests_.state(*handle).status)) {
        fault_ = AssertionFault();
        return;
      }
      EndDelay(*handle);
    } else if (handle && requests_.state(*handle).awaits_receive) {
      requests_.state(*handle).awaits_receive = false;
      if (!requests_.state(*handle).free_delayed()) EndDelay(*handle);
    }
  }
  for (std::string_view id : outcome.finished_sending) {
    const std::optional<RequestHandle> handle = requests_.Find(id);
    if (strict) {
      if (!handle || !IsFinished(requests_.state(*handle).status)) {
        fault_ = AssertionFault();
        return;
      }
      EndDelay(*handle);
    } else if (handle && requests_.state(*handle).awaits_send) {
      requests_.state(*handle).awaits_send = false;
      if (!requests_.state(*handle).free_delayed()) EndDelay(*handle);
    }
  }
}

}  // namespace tally
