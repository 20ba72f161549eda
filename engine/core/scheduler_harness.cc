#include "engine/core/scheduler_harness.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/check.h"

namespace tally {

std::string Planned::Text() const {
  std::vector<std::string> parts;
  for (const PlannedRequest& r : requests) {
    const bool cached = r.kind != ScheduledRequest::Kind::kNew;
    const char* kind = r.kind == ScheduledRequest::Kind::kNew       ? "new"
                       : r.kind == ScheduledRequest::Kind::kRunning ? "cached"
                                                                    : "resumed";
    const std::string blocks = r.new_blocks.empty() ? "-" : absl::StrJoin(r.new_blocks, ",");
    parts.push_back(absl::StrCat(kind, " ", r.id, "[", blocks, "]@", r.computed,
                                 cached ? absl::StrCat("/o", r.outputs) : "", " n", r.tokens));
  }
  return absl::StrJoin(parts, "; ");
}

std::string Planned::Tokens() const {
  std::vector<std::string> parts;
  for (const PlannedRequest& r : requests) parts.push_back(absl::StrCat(r.id, ":", r.tokens));
  return absl::StrJoin(parts, " ");
}

EngineConfig SchedulerHarness::SmallConfig(std::uint32_t num_blocks) {
  EngineConfig config;
  config.kv.block_size = 4;
  config.kv.num_blocks = num_blocks;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 256;
  return config;
}

std::vector<TokenId> SchedulerHarness::Prompt(TokenId first, std::size_t length) {
  std::vector<TokenId> prompt(length);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

SchedulerHarness::SchedulerHarness(const EngineConfig& config,
                                   std::unique_ptr<KvConnector> connector) {
  absl::StatusOr<std::unique_ptr<Scheduler>> made = Scheduler::Create(config, std::move(connector));
  TALLY_CHECK(made.ok(), "%s", std::string(made.status().message()).c_str());
  scheduler_ = *std::move(made);
}

absl::Status SchedulerHarness::Add(std::string id, std::vector<TokenId> prompt,
                                   std::int32_t max_tokens, RequestSpec rest) {
  rest.id = id;
  rest.prompt = prompt;
  rest.max_tokens = max_tokens;
  const Seconds now = Tick();
  if (rest.arrival_time == 0) rest.arrival_time = now;
  const absl::Status status = scheduler_->AddRequest(rest, now).status();
  scheduler_->CheckInvariants();
  return status;
}

Planned SchedulerHarness::Schedule() {
  const absl::StatusOr<StepPlan> plan = scheduler_->Schedule(Tick());
  TALLY_CHECK(plan.ok(), "%s", std::string(plan.status().message()).c_str());
  scheduler_->CheckInvariants();
  Planned planned;
  std::int32_t total = 0;
  for (const ScheduledRequest& entry : plan->requests) {
    total += entry.num_tokens;
    PlannedRequest& r = planned.requests.emplace_back();
    r.id = scheduler_->id(entry.request);
    r.kind = entry.kind;
    r.tokens = entry.num_tokens;
    r.computed = entry.num_computed_tokens;
    r.outputs = entry.num_output_tokens;
    if (entry.has_new_blocks()) {
      for (BlockId block :
           scheduler_->kv().Table(entry.request, 0).subspan(plan->FirstNewBlock(entry, 0))) {
        r.new_blocks.push_back(Index(block));
      }
    }
    const std::span<const TokenId> drafts = plan->Drafts(entry);
    r.drafts.assign(drafts.begin(), drafts.end());
  }
  TALLY_CHECK(total == plan->num_scheduled_tokens, "%d tokens, total says %d", total,
              plan->num_scheduled_tokens);
  planned.preempted = Names(plan->preempted);
  planned.finished = Names(plan->finished);
  planned.common_prefix.assign(plan->common_prefix_blocks.begin(),
                               plan->common_prefix_blocks.end());
  return planned;
}

std::vector<ClientOutput> SchedulerHarness::Update(
    const std::map<std::string, std::vector<TokenId>>& sampled, TokenId filler,
    const TransferReports& reports) {
  std::vector<std::uint32_t> offsets = {0};
  std::vector<TokenId> tokens;
  for (const ScheduledRequest& entry : scheduler_->oldest_outstanding()) {
    const auto row = sampled.find(std::string(scheduler_->id(entry.request)));
    if (row != sampled.end() && entry.samples) {
      tokens.insert(tokens.end(), row->second.begin(), row->second.end());
    } else if (entry.samples) {
      tokens.push_back(filler);
    }
    offsets.push_back(static_cast<std::uint32_t>(tokens.size()));
  }
  const std::vector<std::string_view> recving(reports.finished_recving.begin(),
                                              reports.finished_recving.end());
  const std::vector<std::string_view> sending(reports.finished_sending.begin(),
                                              reports.finished_sending.end());
  std::vector<BlockId> invalid;
  for (const std::uint32_t block : reports.invalid_blocks) invalid.push_back(BlockId{block});
  const absl::StatusOr<StepResult> result = scheduler_->Update({.sampled_offsets = offsets,
                                                                .sampled_tokens = tokens,
                                                                .finished_recving = recving,
                                                                .finished_sending = sending,
                                                                .invalid_blocks = invalid},
                                                               Tick());
  TALLY_CHECK(result.ok(), "%s", std::string(result.status().message()).c_str());
  scheduler_->CheckInvariants();
  last_outputs_.clear();
  for (const RequestOutput& output : result->outputs) {
    ClientOutput& made = last_outputs_.emplace_back();
    made.id = scheduler_->id(output.request);
    made.tokens.assign(output.tokens.begin(), output.tokens.end());
    made.finish = output.finish_reason;
    made.stop = output.stop_cause;
    if (output.prefill_stats != nullptr) made.prefill = *output.prefill_stats;
    for (const RequestEvent& event : output.events) made.events.push_back(event.kind);
    outputs_[made.id].push_back(made);
  }
  last_stats_ = result->stats;
  queries_ += last_stats_.prefix_cache.queries;
  hits_ += last_stats_.prefix_cache.hits;
  return last_outputs_;
}

Planned SchedulerHarness::Step(TokenId filler) {
  Planned planned = Schedule();
  Update({}, filler);
  return planned;
}

void SchedulerHarness::SetDrafts(const std::string& id, const std::vector<TokenId>& drafts) {
  scheduler_->SetDraftTokens(*scheduler_->Find(id), drafts);
}

std::vector<std::string> SchedulerHarness::Abort(const std::vector<std::string>& ids) {
  const std::vector<std::string_view> views(ids.begin(), ids.end());
  std::vector<std::string> names = Names(scheduler_->Abort(views, now_));
  scheduler_->CheckInvariants();
  return names;
}

std::string SchedulerHarness::State(const std::string& id) const {
  const std::optional<RequestHandle> handle = scheduler_->Find(id);
  if (!handle) return "-";
  const RequestState& state = scheduler_->state(*handle);
  const char letter = state.status == RequestStatus::kRunning     ? 'R'
                      : state.status == RequestStatus::kPreempted ? 'P'
                                                                  : 'W';
  return absl::StrCat(std::string(1, letter), " ", state.num_computed_tokens, "/",
                      state.num_tokens);
}

std::vector<std::string> SchedulerHarness::Names(std::span<const RequestHandle> requests) const {
  std::vector<std::string> names;
  for (RequestHandle request : requests) names.emplace_back(scheduler_->id(request));
  return names;
}

}  // namespace tally
