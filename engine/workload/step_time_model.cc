#include "engine/workload/step_time_model.h"

#include <fmt/format.h>

#include <algorithm>

namespace tally {

StepLoad StepLoad::Of(std::span<const ScheduledRequest> requests) {
  StepLoad load;
  for (const ScheduledRequest& request : requests) {
    const std::int64_t tokens = request.num_tokens;
    const std::int64_t before = request.num_computed_tokens;
    load.num_samples += request.samples ? 1 : 0;
    load.num_tokens += tokens;
    (tokens > 1 ? load.num_prefill_tokens : load.num_decode_tokens) += tokens;
    load.num_context_tokens += before + tokens;
    // Token i of the step attends to `before` + i + 1 keys.
    load.num_attention_pairs += static_cast<double>(tokens) * static_cast<double>(before) +
                                static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2;
  }
  load.num_requests = static_cast<std::int64_t>(requests.size());
  return load;
}

Seconds RooflineModel::Overhead(const StepLoad& load) const {
  return p_.fixed_overhead + p_.per_request_overhead * static_cast<double>(load.num_requests);
}

Seconds RooflineModel::Compute(const StepLoad& load) const {
  const ModelSpec& model = p_.model;
  const double per_token = 2 * (model.num_parameters - 2 * model.num_embedding_parameters);
  const double per_sample = 2 * model.num_embedding_parameters;
  const double per_pair = 4.0 * model.num_layers * model.num_heads * model.head_size;
  const double flops = per_token * static_cast<double>(load.num_tokens) +
                       per_sample * static_cast<double>(load.num_samples) +
                       per_pair * load.num_attention_pairs;
  return flops / (p_.num_gpus * p_.gpu.flops * p_.compute_efficiency);
}

Seconds RooflineModel::Memory(const StepLoad& load) const {
  const double kv_tokens = static_cast<double>(load.num_context_tokens + load.num_tokens);
  const double bytes = p_.model.weight_bytes() + p_.model.kv_bytes_per_token() * kv_tokens;
  return bytes / (p_.num_gpus * p_.gpu.memory_bandwidth * p_.memory_efficiency);
}

Seconds RooflineModel::Communication(const StepLoad& load) const {
  if (p_.num_gpus == 1) return 0;
  const double n = p_.num_gpus;
  const double bytes = 2.0 * p_.model.hidden_size * static_cast<double>(load.num_tokens);
  const double one = p_.all_reduce_latency + 2 * (n - 1) / n * bytes / p_.gpu.link_bandwidth;
  return 2.0 * p_.model.num_layers * one;
}

Seconds RooflineModel::StepTime(const StepLoad& load) const {
  return Overhead(load) + std::max(Compute(load), Memory(load)) + Communication(load);
}

std::string RooflineModel::Describe() const {
  return fmt::format(
      "roofline of {} on {} x {}: {:.0f} % of {:.0f} TFLOP/s, {:.0f} % of {:.2f} "
      "TB/s, {:.1f} ms a step",
      p_.model.name, p_.num_gpus, p_.gpu.name, 100 * p_.compute_efficiency, p_.gpu.flops / 1e12,
      100 * p_.memory_efficiency, p_.gpu.memory_bandwidth / 1e12, 1e3 * p_.fixed_overhead);
}

Seconds LinearModel::StepTime(const StepLoad& load) const {
  return p_.fixed + p_.per_request * static_cast<double>(load.num_requests) +
         p_.per_prefill_token * static_cast<double>(load.num_prefill_tokens) +
         p_.per_decode_token * static_cast<double>(load.num_decode_tokens) +
         p_.per_context_token * static_cast<double>(load.num_context_tokens);
}

std::string LinearModel::Describe() const {
  return fmt::format(
      "linear: {:.3g} ms a step, {:.3g} us a prefill token, {:.3g} us a decode "
      "token, {:.3g} ns a context token",
      1e3 * p_.fixed, 1e6 * p_.per_prefill_token, 1e6 * p_.per_decode_token,
      1e9 * p_.per_context_token);
}

}  // namespace tally
