// The front end's view of requests: turns the outputs of a step into iteration statistics.
//
// The front end and the scheduler share no data. It is told of a request when it is added, forgets
// it when its client aborts it or when its last output has come, and drops outputs of requests that
// it does not know: nothing of them is counted (metrics.md PIPE-11, FS-7).
//
// Two clocks (PIPE-5): arrivals and receptions are wall time, events and batch timestamps are the
// engine's monotonic time. A caller with one virtual clock gives the same number for both.
#ifndef TALLY_ENGINE_ACCOUNTING_FRONT_END_STATS_H_
#define TALLY_ENGINE_ACCOUNTING_FRONT_END_STATS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/accounting/iteration_stats.h"
#include "engine/base/types.h"
#include "engine/core/step_outcome.h"

namespace tally {

class FrontEndStats {
 public:
  // Of a request that the scheduler has accepted. Amortised O(1).
  void AddRequest(RequestHandle request, std::int64_t num_prompt_tokens, std::int64_t max_tokens,
                  Seconds arrival);

  // After the client's abort. Unknown requests are passed over.
  void Forget(RequestHandle request);

  // Takes the outputs of one step, in order, into `stats`, which is cleared first. `batch_time` is
  // the engine's clock when the step's outputs were complete, `reception_time` the front end's when
  // it takes them. O(outputs and their events).
  void Process(std::span<const RequestOutput> outputs, Seconds batch_time, Seconds reception_time,
               IterationStats& stats);

 private:
  // RS-1. The engine's times are 0 while unset (PIPE-6).
  struct RequestTimes {
    bool known = false;
    bool prefilling = true;
    std::int64_t num_prompt_tokens = 0;
    std::int64_t max_tokens = 0;
    std::int64_t num_generation_tokens = 0;
    std::int64_t num_cached_tokens = 0;
    Seconds arrival = 0;
    Seconds queued = 0;
    Seconds scheduled = 0;
    Seconds first_output = 0;
    Seconds last_output = 0;
  };

  static FinishedRequestStats Finish(const RequestTimes& times, FinishReason reason,
                                     Seconds reception_time);

  std::vector<RequestTimes> requests_;  // by handle
};

}  // namespace tally

#endif  // TALLY_ENGINE_ACCOUNTING_FRONT_END_STATS_H_
