// How long a step of the model takes, in virtual time.
#ifndef TALLY_ENGINE_WORKLOAD_STEP_TIME_MODEL_H_
#define TALLY_ENGINE_WORKLOAD_STEP_TIME_MODEL_H_

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/types.h"
#include "engine/core/step_plan.h"
#include "engine/workload/hardware.h"

namespace tally {

// What a step computes, as far as its time depends on it. Tokens.
struct StepLoad {
  std::int64_t num_requests = 0;
  std::int64_t num_samples = 0;         // requests that sample
  std::int64_t num_tokens = 0;          // computed, prefill and decode
  std::int64_t num_prefill_tokens = 0;  // of them, of requests with more than one
  std::int64_t num_decode_tokens = 0;   // the rest: one a request
  std::int64_t num_context_tokens = 0;  // KV read: the sum of the contexts after the step
  double num_attention_pairs = 0;       // query and key pairs, causal

  static StepLoad Of(std::span<const ScheduledRequest> requests);
};

class StepTimeModel {
 public:
  virtual ~StepTimeModel() = default;
  virtual Seconds StepTime(const StepLoad& load) const = 0;
  // In a few words, with its numbers: for the report.
  virtual std::string Describe() const = 0;
};

// A roofline over the whole step:
//
//   time = overhead + max(compute, memory) + communication
//   overhead      = fixed_overhead + per_request_overhead x requests
//   compute       = FLOPs / (num_gpus x peak FLOP/s x compute_efficiency)
//   FLOPs         = 2 x (parameters - 2 x embedding) x tokens + 2 x embedding x samples
//                   + 4 x layers x heads x head_size x attention pairs
//   memory        = bytes / (num_gpus x bandwidth x memory_efficiency)
//   bytes         = weights + KV bytes a token x (context tokens + tokens)
//   communication = with n > 1 GPUs 2 all-reduces a layer, each of latency + 2 (n-1)/n x hidden
//                   x 2 bytes x tokens / link bandwidth
//
// 2 FLOPs a parameter and token and 4 an attention pair and channel are the usual counts (Kaplan et
// al. 2020, section 2.1; Chowdhery et al. 2022, appendix B); the roofline is Williams et al. 2009;
// the ring all-reduce volume Patarasuk and Yuan 2009. The efficiencies are typical of what serving
// engines reach on these GPUs with 16-bit weights, not measured here: replace them by your own.
struct RooflineParameters {
  ModelSpec model;
  GpuSpec gpu;
  std::int32_t num_gpus = 1;
  double compute_efficiency = 0.6;
  double memory_efficiency = 0.8;
  Seconds fixed_overhead = 2e-3;        // launches and the sampler of one step
  Seconds per_request_overhead = 5e-6;  // preparing its inputs
  Seconds all_reduce_latency = 10e-6;
};

class RooflineModel : public StepTimeModel {
 public:
  explicit RooflineModel(const RooflineParameters& parameters) : p_(parameters) {}
  Seconds StepTime(const StepLoad& load) const override;
  std::string Describe() const override;

  // The parts.
  Seconds Overhead(const StepLoad& load) const;
  Seconds Compute(const StepLoad& load) const;
  Seconds Memory(const StepLoad& load) const;
  Seconds Communication(const StepLoad& load) const;

 private:
  const RooflineParameters p_;
};

// A sum of costs, as one fits it to measurements of a real engine:
//   fixed + per_request x requests + per_prefill_token x prefill tokens
//   + per_decode_token x decode tokens + per_context_token x context tokens
struct LinearParameters {
  Seconds fixed = 0;
  Seconds per_request = 0;
  Seconds per_prefill_token = 0;
  Seconds per_decode_token = 0;
  Seconds per_context_token = 0;
};

class LinearModel : public StepTimeModel {
 public:
  explicit LinearModel(const LinearParameters& parameters) : p_(parameters) {}
  Seconds StepTime(const StepLoad& load) const override;
  std::string Describe() const override;

 private:
  const LinearParameters p_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_STEP_TIME_MODEL_H_
