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
#include <string>
#include <string_view>
#include <vector>

#include "engine/accounting/iteration_stats.h"
#include "engine/accounting/lora_states.h"
#include "engine/base/types.h"
#include "engine/core/step_outcome.h"

namespace tally {

class FrontEndStats {
 public:
  // Of a request that the scheduler has accepted. Amortised O(1).
  void AddRequest(RequestHandle request, std::int64_t num_prompt_tokens, std::int64_t max_tokens,
                  Seconds arrival, bool streaming = false, std::string_view lora_name = {});

  // The next chunk of a streaming session, and its end (SES-2, SES-5).
  void AddChunk(RequestHandle request, std::int64_t num_prompt_tokens, Seconds arrival);
  void EndSession(RequestHandle request);

  const LoraStates& loras() const { return loras_; }

  // After the client's abort. Unknown requests are passed over.
  void Forget(RequestHandle request);

  // Takes the outputs of one step, in order, into `stats`, which is cleared first. `batch_time` is
  // the engine's clock when the step's outputs were complete, `reception_time` the front end's when
  // it takes them. O(outputs and their events).
  void Process(std::span<const RequestOutput> outputs, Seconds batch_time, Seconds reception_time,
               IterationStats& stats);

 private:
  struct Chunk {
    std::int64_t num_prompt_tokens = 0;
    Seconds arrival = 0;
    bool final = false;
  };

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
    // Of a streaming session: more chunks may come (SES-1); the last applied one has ended.
    bool streaming = false;
    bool idle = false;
    std::vector<Chunk> chunks;  // sent and not applied yet
    std::string lora_name;
  };

  static void Apply(const Chunk& chunk, RequestTimes& times);
  static FinishedRequestStats Finish(const RequestTimes& times, FinishReason reason,
                                     Seconds reception_time);

  std::vector<RequestTimes> requests_;  // by handle
  LoraStates loras_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_ACCOUNTING_FRONT_END_STATS_H_
