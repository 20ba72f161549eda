// The models and GPUs that a replay can name: what sets the number of KV blocks and the time a step
// takes.
#ifndef TALLY_ENGINE_WORKLOAD_HARDWARE_H_
#define TALLY_ENGINE_WORKLOAD_HARDWARE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tally {

// A dense decoder with grouped-query attention, weights and KV in 16 bits.
struct ModelSpec {
  std::string name;
  double num_parameters = 0;            // all of them: they are read from memory
  double num_embedding_parameters = 0;  // of them, one of the input and output embeddings
  std::int32_t num_layers = 0;
  std::int32_t hidden_size = 0;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_size = 0;
  std::int32_t max_model_len = 0;
  double bytes_per_parameter = 2;
  double bytes_per_kv_element = 2;

  double weight_bytes() const { return num_parameters * bytes_per_parameter; }
  // Keys and values of one token, over all layers.
  double kv_bytes_per_token() const {
    return 2.0 * num_layers * num_kv_heads * head_size * bytes_per_kv_element;
  }
};

struct GpuSpec {
  std::string name;
  double memory_bytes = 0;
  double flops = 0;             // dense 16-bit tensor operations a second, peak
  double memory_bandwidth = 0;  // bytes a second, peak
  double link_bandwidth = 0;    // bytes a second to the other GPUs, one direction
  // vLLM's defaults for a server on such a GPU (scheduler.md section 8).
  std::int32_t server_max_num_seqs = 256;
  std::int32_t server_max_num_batched_tokens = 2048;
};

// "llama-3.1-8b", "llama-3.1-70b"; "a100", "h100", "h200". Sources stand beside the numbers.
std::span<const ModelSpec> KnownModels();
std::span<const GpuSpec> KnownGpus();
// Case does not matter; nothing for an unknown name.
std::optional<ModelSpec> ModelByName(std::string_view name);
std::optional<GpuSpec> GpuByName(std::string_view name);

// Tokens whose KV fits beside the weights: as vLLM's profiling run finds it, memory x utilisation
// - weights - `reserved_bytes` (activations and CUDA graphs), on each of the GPUs. Not positive
// when the weights do not fit.
double KvCapacityTokens(const ModelSpec& model, const GpuSpec& gpu, std::int32_t num_gpus,
                        double memory_utilization, double reserved_bytes);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_HARDWARE_H_
