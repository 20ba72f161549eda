#include "engine/workload/replayer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/workload/prefix_bound.h"
#include "engine/workload/random.h"
#include "engine/workload/token_expansion.h"
#include "engine/workload/transfer_times.h"

namespace tally {
namespace {

constexpr std::size_t kMaxExamples = 5;
constexpr std::int64_t kStepsBetweenProgress = 256;

// Adds the real time of a scope to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(Seconds& sum) : sum_(sum), begin_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
    sum_ += elapsed.count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Seconds& sum_;
  const std::chrono::steady_clock::time_point begin_;
};

// The workload with its arrival times settled, one request ahead.
class ArrivalQueue {
 public:
  ArrivalQueue(WorkloadSource& source, const ReplayOptions& options)
      : source_(source), options_(options), random_(options.seed) {
    concurrency_ = options.concurrency;
    if (!source.has_arrivals() && !options.requests_per_second && !concurrency_) {
      concurrency_ = kDefaultConcurrency;
    }
  }

  absl::Status ReadAhead() {
    if (has_next_ || ended_) return absl::OkStatus();
    ended_ = options_.limit > 0 && num_read_ == options_.limit;
    if (ended_) return absl::OkStatus();
    const absl::StatusOr<bool> read = source_.Next(next_);
    if (!read.ok()) return read.status();
    ended_ = !*read;
    if (ended_) return absl::OkStatus();
    has_next_ = true;
    ++num_read_;
    if (options_.requests_per_second) {
      poisson_time_ += random_.Exponential(1 / *options_.requests_per_second);
      next_.arrival = poisson_time_;
    }
    return absl::OkStatus();
  }

  // Whether the next request arrives by `now`, with `in_system` others not yet done.
  bool IsDue(Seconds now, std::int64_t in_system) const {
    if (!has_next_) return false;
    if (concurrency_) return in_system < *concurrency_;
    return next_.arrival <= now;
  }
  WorkloadRequest Take(Seconds now) {
    has_next_ = false;
    if (concurrency_) next_.arrival = now;
    return std::move(next_);
  }
  // When the next request arrives; nothing when there is none or the loop is closed.
  std::optional<Seconds> NextArrival() const {
    if (!has_next_ || concurrency_) return std::nullopt;
    return next_.arrival;
  }

  double fraction() const {
    if (ended_) return 1;
    const double of_limit =
        options_.limit > 0 ? static_cast<double>(num_read_) / static_cast<double>(options_.limit)
                           : 0.0;
    return std::max(of_limit, source_.fraction_read());
  }
  std::string Describe() const {
    if (concurrency_) return fmt::format("closed loop of {} requests", *concurrency_);
    if (options_.requests_per_second) {
      return fmt::format("Poisson, {:g} requests a second", *options_.requests_per_second);
    }
    return "the workload's own";
  }

 private:
  WorkloadSource& source_;
  const ReplayOptions& options_;
  Random random_;
  std::optional<std::int32_t> concurrency_;
  WorkloadRequest next_;
  bool has_next_ = false;
  bool ended_ = false;
  std::int64_t num_read_ = 0;
  Seconds poisson_time_ = 0;
};

class Replayer {
 public:
  Replayer(const ReplayConfig& config, WorkloadSource& source, const ReplayOptions& options,
           Scheduler& scheduler)
      : config_(config),
        options_(options),
        scheduler_(scheduler),
        source_(source),
        arrivals_(source, options),
        depth_(config.engine.async_scheduling ? 2 : 1) {
    if (config.connector) {
      transfers_.emplace(config.model.kv_bytes_per_token() * config.engine.kv.block_size,
                         config.connector->bytes_per_second);
    }
    window_ = static_cast<std::size_t>(
        std::max(options.waiting_window.value_or(0), config.engine.max_num_seqs));
  }

  absl::Status Run();
  ReplayReport TakeReport();

 private:
  // What the replayer keeps of a request in the scheduler, by its handle.
  struct InFlight {
    std::uint64_t output_seed = 0;
    Seconds arrival = 0;
    Seconds last_output = 0;
    std::int32_t num_prompt_tokens = 0;
    std::int32_t num_computed_before = 0;  // the highest position that a step reached, ever
    bool has_output = false;
  };

  std::int64_t in_system() const {
    return report_.num_read - report_.num_done - report_.num_rejected;
  }
  bool Interrupted() const {
    return options_.interrupted != nullptr && options_.interrupted->load();
  }

  absl::Status TakeArrivals();
  std::optional<std::string> ReasonToReject(const WorkloadRequest& request) const;
  void Reject(const WorkloadRequest& request, const std::string& reason);
  absl::Status FeedScheduler();
  absl::Status Add(const WorkloadRequest& request);
  // Plans a step and puts it on the GPU; false when there was nothing to schedule.
  absl::StatusOr<bool> StartStep();
  // Ends the oldest step.
  absl::Status FinishStep();
  void StartTransfers(const StepPlan& plan, Seconds begin, Seconds end);
  void TakeOutput(const RequestOutput& output);
  void ReportProgress();

  const ReplayConfig& config_;
  const ReplayOptions& options_;
  Scheduler& scheduler_;
  WorkloadSource& source_;
  ArrivalQueue arrivals_;
  const std::size_t depth_;
  std::size_t window_;

  Seconds now_ = 0;
  Seconds gpu_free_ = 0;
  std::deque<Seconds> finish_times_;  // of the outstanding steps
  std::deque<WorkloadRequest> backlog_;
  std::vector<InFlight> in_flight_;
  std::optional<TransferTimes> transfers_;
  PrefixBound bound_;
  ReplayReport report_;

  // Reused between steps.
  std::vector<TokenId> prompt_;
  std::vector<std::uint32_t> sampled_offsets_;
  std::vector<TokenId> sampled_tokens_;
};

absl::Status Replayer::Run() {
  while (!Interrupted()) {
    if (absl::Status status = TakeArrivals(); !status.ok()) {
      // The signal may have ended a read that waited for a pipe.
      if (Interrupted()) break;
      return status;
    }
    if (absl::Status status = FeedScheduler(); !status.ok()) return status;
    if (finish_times_.size() < depth_ && scheduler_.num_unfinished() > 0) {
      const absl::StatusOr<bool> started = StartStep();
      if (!started.ok()) return started.status();
      if (*started && finish_times_.size() < depth_) continue;
    }
    if (!finish_times_.empty()) {
      if (absl::Status status = FinishStep(); !status.ok()) return status;
      continue;
    }
    const std::optional<Seconds> next = arrivals_.NextArrival();
    if (next.has_value()) {
      now_ = std::max(now_, *next);
      continue;
    }
    if (in_system() == 0 && !arrivals_.IsDue(now_, 0)) return absl::OkStatus();
    if (scheduler_.num_unfinished() > 0) {
      return absl::InternalError(fmt::format(
          "the engine makes no progress: {} requests wait and nothing is scheduled at {:.3f} s",
          scheduler_.num_unfinished(), now_));
    }
  }
  report_.interrupted = true;
  return absl::OkStatus();
}

absl::Status Replayer::TakeArrivals() {
  for (;;) {
    if (absl::Status status = arrivals_.ReadAhead(); !status.ok()) return status;
    if (!arrivals_.IsDue(now_, in_system())) return absl::OkStatus();
    WorkloadRequest request = arrivals_.Take(now_);
    ++report_.num_read;
    report_.num_prompt_tokens_read += request.num_prompt_tokens;
    bound_.Add(request);
    if (const std::optional<std::string> reason = ReasonToReject(request)) {
      Reject(request, *reason);
    } else {
      backlog_.push_back(std::move(request));
    }
  }
}

std::optional<std::string> Replayer::ReasonToReject(const WorkloadRequest& request) const {
  const std::int64_t tokens =
      static_cast<std::int64_t>(request.num_prompt_tokens) + request.num_output_tokens;
  if (tokens > config_.engine.max_model_len) return "longer than max_model_len";
  if (!scheduler_.kv().FitsEmptyPool(static_cast<std::int32_t>(tokens))) {
    return "longer than the whole KV cache";
  }
  return std::nullopt;
}

void Replayer::Reject(const WorkloadRequest& request, const std::string& reason) {
  ++report_.num_rejected;
  ++report_.rejected_by_reason[reason];
  if (report_.rejected_examples.size() < kMaxExamples) {
    report_.rejected_examples.push_back(fmt::format("row {}: {} prompt and {} output tokens, {}",
                                                    request.row, request.num_prompt_tokens,
                                                    request.num_output_tokens, reason));
  }
}

absl::Status Replayer::FeedScheduler() {
  const bool holds_back = config_.engine.policy == SchedulingPolicy::kFcfs;
  while (!backlog_.empty() && (!holds_back || scheduler_.num_waiting() < window_)) {
    if (absl::Status status = Add(backlog_.front()); !status.ok()) return status;
    backlog_.pop_front();
  }
  const auto waiting = static_cast<std::int64_t>(scheduler_.num_waiting() + backlog_.size());
  report_.peak_waiting = std::max(report_.peak_waiting, waiting);
  return absl::OkStatus();
}

absl::Status Replayer::Add(const WorkloadRequest& request) {
  ExpandPrompt(request, prompt_);
  const std::string id = std::to_string(request.row);
  RequestSpec spec;
  spec.id = id;
  spec.prompt = prompt_;
  spec.max_tokens = request.num_output_tokens;
  spec.priority = request.priority;
  spec.arrival_time = request.arrival;
  spec.cache_salt = request.cache_salt;
  absl::StatusOr<RequestHandle> handle = absl::UnknownError("");
  {
    Stopwatch stopwatch(report_.add_time);
    handle = scheduler_.AddRequest(spec, now_);
  }
  if (absl::IsOutOfRange(handle.status())) {
    Reject(request, "refused by the engine: " + std::string(handle.status().message()));
    return absl::OkStatus();
  }
  if (!handle.ok()) return handle.status();
  if (Index(*handle) >= in_flight_.size()) in_flight_.resize(Index(*handle) + 1);
  in_flight_[Index(*handle)] = InFlight{.output_seed = request.output_seed,
                                        .arrival = request.arrival,
                                        .num_prompt_tokens = request.num_prompt_tokens};
  return absl::OkStatus();
}

absl::StatusOr<bool> Replayer::StartStep() {
  absl::StatusOr<StepPlan> plan = absl::UnknownError("");
  {
    Stopwatch stopwatch(report_.schedule_time);
    plan = scheduler_.Schedule(now_);
  }
  if (!plan.ok()) return plan.status();
  if (options_.on_plan) options_.on_plan(scheduler_, *plan);
  report_.num_preemptions += static_cast<std::int64_t>(plan->preempted.size());
  const bool empty = plan->requests.empty();
  if (!empty) {
    ++report_.num_steps;
    report_.num_request_steps += static_cast<std::int64_t>(plan->requests.size());
    report_.num_scheduled_tokens += plan->num_scheduled_tokens;
    report_.peak_kv_usage = std::max(report_.peak_kv_usage, scheduler_.kv().usage());
    report_.peak_running =
        std::max(report_.peak_running, static_cast<std::int64_t>(scheduler_.running().size()));
    for (const ScheduledRequest& entry : plan->requests) {
      InFlight& request = in_flight_[Index(entry.request)];
      const std::int32_t end = entry.num_computed_tokens + entry.num_tokens;
      const std::int32_t again = std::min(end, request.num_computed_before);
      report_.num_recomputed_tokens += std::max(0, again - entry.num_computed_tokens);
      request.num_computed_before = std::max(request.num_computed_before, end);
    }
    gpu_free_ =
        std::max(gpu_free_, now_) + config_.step_time->StepTime(StepLoad::Of(plan->requests));
  }
  if (transfers_) StartTransfers(*plan, now_, std::max(gpu_free_, now_));
  // An empty step takes no time, but the scheduler wants its outcome like any other's. When all
  // that goes on are transfers, it ends with the next one, or when somebody arrives.
  Seconds end = std::max(gpu_free_, now_);
  if (empty && transfers_ && finish_times_.empty()) {
    if (const std::optional<Seconds> next = transfers_->NextEnd()) {
      end = std::max(end, std::min(*next, arrivals_.NextArrival().value_or(*next)));
    }
  }
  if (scheduler_.num_outstanding_steps() > finish_times_.size()) finish_times_.push_back(end);
  return !empty;
}

void Replayer::StartTransfers(const StepPlan& plan, Seconds begin, Seconds end) {
  const auto* metadata = dynamic_cast<const OffloadingMetadata*>(plan.connector);
  const Seconds flushed = transfers_->Start(*metadata, begin, end);
  // Blocks that are stored may not be written to before.
  gpu_free_ = std::max(gpu_free_, flushed);
  for (RequestHandle request : plan.finished)
    transfers_->Finish(std::string(scheduler_.id(request)));
}

absl::Status Replayer::FinishStep() {
  now_ = std::max(now_, finish_times_.front());
  finish_times_.pop_front();
  sampled_offsets_.assign(1, 0);
  sampled_tokens_.clear();
  for (const ScheduledRequest& entry : scheduler_.oldest_outstanding()) {
    if (entry.samples) {
      const InFlight& request = in_flight_[Index(entry.request)];
      sampled_tokens_.push_back(
          StreamToken(request.output_seed, static_cast<std::uint64_t>(entry.num_output_tokens)));
    }
    sampled_offsets_.push_back(static_cast<std::uint32_t>(sampled_tokens_.size()));
  }
  TransferTimes::Reports transfers;
  if (transfers_) transfers = transfers_->TakeReports(now_);
  const std::vector<std::string_view> received(transfers.finished_recving.begin(),
                                               transfers.finished_recving.end());
  const std::vector<std::string_view> sent(transfers.finished_sending.begin(),
                                           transfers.finished_sending.end());
  absl::StatusOr<StepResult> result = absl::UnknownError("");
  {
    Stopwatch stopwatch(report_.update_time);
    result = scheduler_.Update({.sampled_offsets = sampled_offsets_,
                                .sampled_tokens = sampled_tokens_,
                                .finished_recving = received,
                                .finished_sending = sent},
                               now_);
  }
  if (!result.ok()) return result.status();
  for (const RequestOutput& output : result->outputs) TakeOutput(output);
  const PrefixCacheStats& cache = result->stats.prefix_cache;
  PrefixCacheStats& sum = report_.prefix_cache;
  sum.requests += cache.requests;
  sum.queries += cache.queries;
  sum.hits += cache.hits;
  sum.preempted_requests += cache.preempted_requests;
  sum.preempted_queries += cache.preempted_queries;
  sum.preempted_hits += cache.preempted_hits;
  if (report_.num_steps % kStepsBetweenProgress == 0) ReportProgress();
  return absl::OkStatus();
}

void Replayer::TakeOutput(const RequestOutput& output) {
  InFlight& request = in_flight_[Index(output.request)];
  if (output.prefill_stats != nullptr) {
    ++report_.num_first_outputs;
    report_.num_prompt_tokens += request.num_prompt_tokens;
    report_.num_computed_tokens += output.prefill_stats->num_computed_tokens;
    report_.num_local_cached_tokens += output.prefill_stats->num_local_cached_tokens;
    report_.num_external_cached_tokens += output.prefill_stats->num_external_cached_tokens;
  }
  if (!output.tokens.empty()) {
    LatencyHistogram& latency = request.has_output ? report_.inter_token : report_.ttft;
    latency.Add(now_ - (request.has_output ? request.last_output : request.arrival));
    request.has_output = true;
    request.last_output = now_;
    report_.num_output_tokens += static_cast<std::int64_t>(output.tokens.size());
  }
  if (output.finish_reason != FinishReason::kNone) {
    ++report_.num_done;
    report_.end_to_end.Add(now_ - request.arrival);
  }
}

void Replayer::ReportProgress() {
  if (!options_.on_progress) return;
  ReplayProgress progress;
  progress.num_done = report_.num_done;
  progress.virtual_time = now_;
  // Of what was read, the part that is over; of the workload, the part that was read.
  const auto over = static_cast<double>(report_.num_done + report_.num_rejected);
  progress.fraction = arrivals_.fraction() * over /
                      static_cast<double>(std::max<std::int64_t>(report_.num_read, 1));
  options_.on_progress(progress);
}

ReplayReport Replayer::TakeReport() {
  report_.format = std::string(source_.format());
  report_.arrivals = arrivals_.Describe();
  report_.num_bad_rows = source_.num_bad_rows();
  report_.has_prefixes = source_.has_prefixes();
  report_.hit_rate_bound = bound_.fraction();
  report_.virtual_time = now_;
  if (transfers_) {
    const double bytes = config_.model.kv_bytes_per_token() * config_.engine.kv.block_size;
    report_.loaded_bytes = bytes * static_cast<double>(transfers_->loaded_blocks());
    report_.stored_bytes = bytes * static_cast<double>(transfers_->stored_blocks());
  }
  return std::move(report_);
}

}  // namespace

absl::StatusOr<ReplayReport> Replay(const ReplayConfig& config, WorkloadSource& source,
                                    const ReplayOptions& options) {
  std::unique_ptr<KvConnector> connector;
  if (config.connector) {
    connector = std::make_unique<OffloadingConnector>(
        OffloadingConnector::Options{.num_cpu_blocks = config.connector->num_blocks,
                                     .block_size = config.engine.kv.block_size,
                                     .eviction = config.connector->eviction});
  }
  absl::StatusOr<std::unique_ptr<Scheduler>> scheduler =
      Scheduler::Create(config.engine, std::move(connector));
  if (!scheduler.ok()) return scheduler.status();
  Replayer replayer(config, source, options, **scheduler);
  Seconds wall_time = 0;
  {
    Stopwatch stopwatch(wall_time);
    if (absl::Status status = replayer.Run(); !status.ok()) return status;
  }
  ReplayReport report = replayer.TakeReport();
  report.wall_time = wall_time;
  return report;
}

}  // namespace tally
