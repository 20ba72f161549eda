#include "engine/connector/connector_test_driver.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "kernels/device/virtual_device.h"

namespace tally {
namespace {

template <typename T>
T Made(absl::StatusOr<T> made) {
  TALLY_CHECK(made.ok(), "%s", std::string(made.status().message()).c_str());
  return *std::move(made);
}

TokenId NextToken(const Request& request) {
  const TokenId last = request.output.empty() ? request.prompt.back() : request.output.back();
  return static_cast<TokenId>(
      (static_cast<std::size_t>(last) * 7 + request.prompt.size() + request.output.size()) % 50);
}

}  // namespace

ConnectorTestDriver::ConnectorTestDriver(const EngineConfig& config,
                                         std::unique_ptr<KvConnector> connector,
                                         std::unique_ptr<KvConnectorWorker> worker, Device& device,
                                         Options options)
    : options_(std::move(options)),
      device_(device),
      content_(config.kv.block_size, options_.num_layers),
      arena_(Made(device.AllocateArena(config.kv.num_blocks, content_.block_bytes()))),
      compute_(Made(device.CreateStream())),
      worker_(std::move(worker)),
      scheduler_(Made(Scheduler::Create(config, std::move(connector)))) {
  TALLY_CHECK(!config.async_scheduling, "steps of the driver are synchronous");
  if (worker_ == nullptr) return;
  const absl::Status status = worker_->RegisterKvCaches(device_, *arena_, *compute_);
  TALLY_CHECK(status.ok(), "%s", std::string(status.message()).c_str());
}

ConnectorTestDriver::~ConnectorTestDriver() {
  ShutdownWorker();
  worker_.reset();
  compute_->Synchronize().IgnoreError();
}

void ConnectorTestDriver::ShutdownWorker() {
  if (worker_ == nullptr) return;
  worker_->Shutdown();
  shut_down_ = true;
}

absl::Status ConnectorTestDriver::Add(const std::string& id, std::vector<TokenId> prompt,
                                      std::int32_t max_tokens,
                                      std::shared_ptr<const nlohmann::json> kv_transfer_params) {
  RequestSpec spec;
  spec.id = id;
  spec.prompt = prompt;
  spec.max_tokens = max_tokens;
  spec.kv_transfer_params = std::move(kv_transfer_params);
  const Seconds now = Now();
  spec.arrival_time = now;
  const absl::Status status = scheduler_->AddRequest(spec, now).status();
  if (status.ok()) {
    clients_[id] = Client{.num_prompt_tokens = static_cast<std::int32_t>(prompt.size())};
  }
  scheduler_->CheckInvariants();
  return status;
}

bool ConnectorTestDriver::Abort(const std::string& id) {
  const std::string_view view = id;
  const bool aborted = !scheduler_->Abort(std::span(&view, 1), Now()).empty();
  scheduler_->CheckInvariants();
  if (aborted) clients_.at(id).finish = FinishReason::kAbort;
  return aborted;
}

std::int32_t ConnectorTestDriver::Step() {
  TALLY_CHECK(!shut_down_, "a step after the worker's shutdown");
  const StepPlan plan = Made(scheduler_->Schedule(Now()));
  scheduler_->CheckInvariants();
  num_preemptions_ += static_cast<std::int64_t>(plan.preempted.size());
  FinishedTransfers transfers;
  if (plan.connector != nullptr) last_metadata_ = plan.connector->ToJson();
  const bool works = worker_ != nullptr && plan.connector != nullptr;
  if (works) {
    worker_->HandlePreemptions(*plan.connector);
    worker_->StartLoadKv(*plan.connector);
  }
  Forward(plan);
  if (works) {
    worker_->WaitForSave(*plan.connector);
    std::vector<std::string> finished;
    for (const RequestHandle request : plan.finished)
      finished.emplace_back(scheduler_->id(request));
    transfers = worker_->GetFinished(finished);
    CheckReports(transfers);
  }

  std::vector<std::uint32_t> offsets = {0};
  std::vector<TokenId> tokens;
  for (const ScheduledRequest& entry : plan.requests) {
    if (entry.samples) {
      const Request& request = scheduler_->request(entry.request);
      tokens.push_back(options_.sample ? options_.sample(request) : NextToken(request));
    }
    offsets.push_back(static_cast<std::uint32_t>(tokens.size()));
  }
  const std::int32_t computed = plan.num_scheduled_tokens;
  num_computed_tokens_ += computed;
  num_invalid_blocks_ += static_cast<std::int64_t>(transfers.invalid_blocks.size());
  const std::vector<std::string_view> sending(transfers.finished_sending.begin(),
                                              transfers.finished_sending.end());
  const std::vector<std::string_view> recving(transfers.finished_recving.begin(),
                                              transfers.finished_recving.end());
  StepOutcome outcome;
  outcome.sampled_offsets = offsets;
  outcome.sampled_tokens = tokens;
  outcome.finished_sending = sending;
  outcome.finished_recving = recving;
  outcome.invalid_blocks = transfers.invalid_blocks;
  Deliver(Made(scheduler_->Update(outcome, Now())));
  scheduler_->CheckInvariants();
  return computed;
}

void ConnectorTestDriver::Forward(const StepPlan& plan) {
  struct Row {
    std::string id;
    std::vector<BlockId> table;
    std::vector<std::uint64_t> prefixes;
    std::size_t begin = 0;
  };
  std::vector<Row> rows;
  for (const ScheduledRequest& entry : plan.requests) {
    const Request& request = scheduler_->request(entry.request);
    const std::span<const BlockId> table = scheduler_->kv().Table(entry.request, 0);
    Row& row = rows.emplace_back();
    row.id = request.id;
    row.table.assign(table.begin(), table.end());
    row.begin = static_cast<std::size_t>(entry.num_computed_tokens);
    row.prefixes = KvContent::Prefixes({request.prompt, request.output},
                                       row.begin + static_cast<std::size_t>(entry.num_tokens),
                                       request.cache_salt);
    CheckWrite(row.id, row.table, row.begin, row.prefixes.size());
  }
  if (rows.empty()) return;
  const absl::Status status = compute_->Run([this, rows = std::move(rows)] {
    // Requests of one step may share a block that one of them computes in it.
    for (const Row& row : rows) content_.Write(*arena_, row.table, row.prefixes, row.begin);
    for (const Row& row : rows) {
      if (const auto wrong = content_.FindWrong(*arena_, row.table, row.prefixes)) {
        Violation(absl::StrCat(row.id, " reads wrong KV of its token ", *wrong, ", computed ",
                               row.begin, " to ", row.prefixes.size()));
      }
    }
  });
  TALLY_CHECK(status.ok(), "%s", std::string(status.message()).c_str());
}

void ConnectorTestDriver::CheckWrite(std::string_view id, std::span<const BlockId> table,
                                     std::size_t begin, std::size_t end) {
  const auto* device = dynamic_cast<const VirtualDevice*>(&device_);
  if (device == nullptr || begin == end) return;
  const auto block_size = static_cast<std::size_t>(scheduler_->config().kv.block_size);
  for (std::size_t i = begin / block_size; i * block_size < end; ++i) {
    const std::byte* block = arena_->block(Index(table[i]));
    if (device->IsBeingRead(block, arena_->block_bytes()))
      Violation(absl::StrCat(std::string(id), " computes into a block that a transfer reads"));
    if (device->IsBeingWritten(block, arena_->block_bytes()))
      Violation(absl::StrCat(std::string(id), " computes into a block that a transfer writes"));
  }
}

void ConnectorTestDriver::CheckReports(const FinishedTransfers& transfers) {
  for (const std::string& id : transfers.finished_sending) {
    const auto request = scheduler_->Find(id);
    if (!request || !scheduler_->state(*request).awaits_send)
      Violation(absl::StrCat("finished_sending of ", id, ", which nobody waits for"));
  }
  for (const std::string& id : transfers.finished_recving) {
    const auto request = scheduler_->Find(id);
    const bool waits =
        request && (scheduler_->state(*request).awaits_receive ||
                    (scheduler_->state(*request).status == RequestStatus::kWaitingForRemoteKvs &&
                     !scheduler_->state(*request).load_finished));
    if (!waits) Violation(absl::StrCat("finished_recving of ", id, ", which nobody waits for"));
  }
  for (const BlockId block : transfers.invalid_blocks) {
    if (block == kNullBlock || Index(block) >= arena_->num_blocks())
      Violation(absl::StrCat("invalid block ", Index(block)));
  }
}

void ConnectorTestDriver::Deliver(const StepResult& result) {
  for (const RequestOutput& output : result.outputs) {
    const std::string id(scheduler_->id(output.request));
    Client& client = clients_.at(id);
    if (client.ended()) Violation(absl::StrCat(id, " gets an output after its end"));
    client.tokens.insert(client.tokens.end(), output.tokens.begin(), output.tokens.end());
    client.finish = output.finish_reason;
    if (output.kv_transfer_params != nullptr)
      client.kv_transfer_params =
          std::make_shared<const nlohmann::json>(*output.kv_transfer_params);
    if (output.prefill_stats == nullptr) continue;
    if (client.prefill) Violation(absl::StrCat(id, " gets its PrefillStats twice"));
    client.prefill = *output.prefill_stats;
    const PrefillStats& p = *client.prefill;
    if (p.num_prompt_tokens != client.num_prompt_tokens || p.num_computed_tokens < 0 ||
        p.num_local_cached_tokens < 0 || p.num_external_cached_tokens < 0 ||
        p.num_computed_tokens + p.num_local_cached_tokens + p.num_external_cached_tokens !=
            p.num_prompt_tokens) {
      Violation(absl::StrCat(id, " gets PrefillStats that do not add up"));
    }
  }
}

bool ConnectorTestDriver::RunUntil(const std::function<bool()>& done, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  // A virtual device moves with each call, so that many calls mean that nothing will happen; unless
  // a thread that looks something up has not been run yet.
  constexpr int kMostIdleSteps = 5000;
  constexpr std::chrono::seconds kMostIdleTime{3};
  auto last_progress = std::chrono::steady_clock::now();
  auto* device = dynamic_cast<VirtualDevice*>(&device_);
  int idle_steps = 0;
  while (!done()) {
    if (Step() > 0) {
      idle_steps = 0;
      last_progress = std::chrono::steady_clock::now();
      continue;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now > end) return false;
    if (worker_ == nullptr || worker_->counters().directions.empty() || device == nullptr) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else if (++idle_steps > kMostIdleSteps) {
      if (!HasTransfersUnderWay() && now - last_progress > kMostIdleTime) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

bool ConnectorTestDriver::HasTransfersUnderWay() const {
  const TransferCounters counters = worker_->counters();
  return std::any_of(counters.directions.begin(), counters.directions.end(),
                     [](const auto& direction) { return direction.second.queued > 0; });
}

bool ConnectorTestDriver::Drain(double seconds) {
  return RunUntil([this] { return Idle(); }, seconds);
}

std::vector<std::string> ConnectorTestDriver::violations() {
  compute_->Synchronize().IgnoreError();
  const std::lock_guard lock(mutex_);
  return violations_;
}

void ConnectorTestDriver::Violation(std::string text) {
  const std::lock_guard lock(mutex_);
  violations_.push_back(std::move(text));
}

}  // namespace tally
