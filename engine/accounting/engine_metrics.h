// The Prometheus series of one engine (metrics.md section 4), fed once a step.
//
// Names, labels and numbers are vLLM's, so that dashboards made for it work. Series that need a
// part of the engine which is not configured (speculative decoding) are left out, as there.
#ifndef TALLY_ENGINE_ACCOUNTING_ENGINE_METRICS_H_
#define TALLY_ENGINE_ACCOUNTING_ENGINE_METRICS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/accounting/histogram.h"
#include "engine/accounting/iteration_stats.h"
#include "engine/accounting/lora_states.h"
#include "engine/core/step_outcome.h"

namespace tally {

// One sample. At most one label beside the engine's own; `label` is empty when there is none. Views
// live for the visit.
struct MetricSample {
  std::string_view name;  // "vllm:prompt_tokens_total"
  std::string_view label;
  std::string_view label_value;
  double value = 0;
  std::string_view labels = {};  // of a series with several: as in the text format, sorted by name
};

class EngineMetrics {
 public:
  struct Config {
    std::int64_t max_model_len = 0;
    std::int32_t num_speculative_tokens = 0;  // 0: no series of speculative decoding
    std::int32_t max_loras = 0;               // 0: no series of adapters
  };
  explicit EngineMetrics(const Config& config);

  // The scheduler's statistics of every step, also of one without outputs (PIPE-7).
  void RecordScheduler(const SchedulerStats& stats);
  // The front end's statistics of a step that had outputs, after RecordScheduler.
  void RecordIteration(const IterationStats& stats);

  // With LoRA: the adapters in use at wall time `now`, after the step's outputs were counted. Every
  // combination is a series of its own whose value is the time when it was last seen; none is ever
  // removed, as upstream.
  void RecordLoras(const LoraStates& loras, Seconds now);

  // All samples in the order of registration (TB-1), zeros included.
  void ForEachSample(absl::FunctionRef<void(const MetricSample&)> visit) const;

 private:
  static constexpr std::size_t kNumReasons =
      5;  // of finishing: stop, length, abort, error, repetition

  void RecordFinished(const FinishedRequestStats& finished);

  std::int32_t num_speculative_tokens_;
  std::int32_t max_loras_;
  std::vector<std::pair<std::string, Seconds>> lora_info_;  // labels and time

  // Gauges.
  std::int64_t num_running_ = 0;
  std::int64_t num_waiting_ = 0;
  std::int64_t num_deferred_ = 0;
  double kv_cache_usage_ = 0;

  // Counters.
  std::int64_t prefix_cache_queries_ = 0;
  std::int64_t prefix_cache_hits_ = 0;
  std::int64_t external_prefix_cache_queries_ = 0;  // of requests that were admitted, in tokens
  std::int64_t external_prefix_cache_hits_ = 0;
  std::int64_t num_preemptions_ = 0;
  std::int64_t generation_tokens_ = 0;
  PromptTokenStats prompt_tokens_;
  std::array<std::int64_t, kNumReasons> finished_{};
  std::int64_t num_drafts_ = 0;
  std::int64_t num_draft_tokens_ = 0;
  std::int64_t num_accepted_tokens_ = 0;
  std::vector<std::int64_t> accepted_per_position_;
  std::vector<std::string> positions_;  // "0", "1", ...

  Histogram request_prompt_tokens_;
  Histogram request_generation_tokens_;
  Histogram iteration_tokens_;
  Histogram max_num_generation_tokens_;
  Histogram params_n_;
  Histogram params_max_tokens_;
  Histogram time_to_first_token_;
  Histogram inter_token_latency_;
  Histogram time_per_output_token_;
  Histogram e2e_latency_;
  Histogram queue_time_;
  Histogram inference_time_;
  Histogram prefill_time_;
  Histogram decode_time_;
  Histogram prefill_kv_computed_tokens_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_ACCOUNTING_ENGINE_METRICS_H_
