// Replays a workload on the scheduler in virtual time: a step takes as long as the step-time model
// says, nothing sleeps, and the same inputs give the same report but for the real times in it.
//
// The load is open: requests arrive at their times, and when the engine has nothing to do time
// jumps to the next arrival. Workloads without arrival times, or those asked to, arrive as a
// Poisson process or in a closed loop that keeps a number of requests in the system.
//
// Under first come, first served a request that waits is held back here, as a recipe of a few
// hundred bytes, while at least max_num_seqs requests wait in the scheduler. This changes no
// decision: one Schedule admits at most max_num_seqs requests, from the front of the queue, so it
// never sees who stands behind them. Under the priority policy every request is given when it
// arrives.
//
// Requests that can never run are rejected when they arrive, as a server would answer them: prompt
// and output together exceed max_model_len, or their KV exceeds the whole cache.
//
// With a connector, blocks move between the KV cache and a larger store behind a link; transfers go
// on beside the steps (transfer_times.h). When nothing can be scheduled, time jumps to the end of
// the next transfer.
//
// With async_scheduling two steps are outstanding: step n + 1 is planned when step n starts.
#ifndef TALLY_ENGINE_WORKLOAD_REPLAYER_H_
#define TALLY_ENGINE_WORKLOAD_REPLAYER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/core/scheduler.h"
#include "engine/core/step_plan.h"
#include "engine/workload/replay_config.h"
#include "engine/workload/replay_report.h"
#include "engine/workload/workload.h"

namespace tally {

struct ReplayProgress {
  double fraction = 0;  // of the workload that is done, 0 to 1
  std::int64_t num_done = 0;
  Seconds virtual_time = 0;
};

struct ReplayOptions {
  // Arrivals other than the workload's own: at most one of them.
  std::optional<double> requests_per_second;  // a Poisson process
  std::optional<std::int32_t> concurrency;    // a closed loop
  std::uint64_t seed = 0;                     // of the Poisson process
  std::int64_t limit = 0;                     // requests to read at most; 0: all
  // Requests that may wait in the scheduler under FCFS before others are held back; absent:
  // max_num_seqs, and not less. For tests: a large number holds nothing back.
  std::optional<std::int32_t> waiting_window;

  // The run ends, with the report so far, soon after this turns true.
  const std::atomic<bool>* interrupted = nullptr;
  // Called every few hundred steps.
  std::function<void(const ReplayProgress&)> on_progress;
  // Called with every plan, before it is executed.
  std::function<void(const Scheduler&, const StepPlan&)> on_plan;
};

// The closed loop of a workload without arrival times, unless told otherwise.
inline constexpr std::int32_t kDefaultConcurrency = 256;

// Replays until every request is done. Errors: a broken row or an unreadable file, as the source
// says it; Internal when the engine makes no progress.
absl::StatusOr<ReplayReport> Replay(const ReplayConfig& config, WorkloadSource& source,
                                    const ReplayOptions& options);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_REPLAYER_H_
