#include "engine/workload/hardware.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace tally {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

bool SameName(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

template <typename Spec>
std::optional<Spec> ByName(std::span<const Spec> specs, std::string_view name) {
  for (const Spec& spec : specs) {
    if (SameName(spec.name, name)) return spec;
  }
  return std::nullopt;
}

}  // namespace

std::span<const ModelSpec> KnownModels() {
  // Meta, "The Llama 3 Herd of Models" (2024), table 3, and the models' published config.json:
  // layers, hidden size, heads, KV heads, a vocabulary of 128,256, a context of 131,072.
  static const std::array<ModelSpec, 2> models = {
      ModelSpec{.name = "llama-3.1-8b",
                .num_parameters = 8'030'261'248,
                .num_embedding_parameters = 128'256.0 * 4096,
                .num_layers = 32,
                .hidden_size = 4096,
                .num_heads = 32,
                .num_kv_heads = 8,
                .head_size = 128,
                .max_model_len = 131'072},
      ModelSpec{.name = "llama-3.1-70b",
                .num_parameters = 70'553'706'496,
                .num_embedding_parameters = 128'256.0 * 8192,
                .num_layers = 80,
                .hidden_size = 8192,
                .num_heads = 64,
                .num_kv_heads = 8,
                .head_size = 128,
                .max_model_len = 131'072},
  };
  return models;
}

std::span<const GpuSpec> KnownGpus() {
  // NVIDIA's data sheets of the SXM boards: dense BF16 tensor throughput (without sparsity), memory
  // bandwidth, NVLink (the sheets give both directions together). Memory is what the driver
  // reports.
  static const std::array<GpuSpec, 3> gpus = {
      GpuSpec{.name = "a100",
              .memory_bytes = 79.25 * kGiB,
              .flops = 312e12,
              .memory_bandwidth = 2.039e12,
              .link_bandwidth = 300e9,
              .server_max_num_seqs = 256,
              .server_max_num_batched_tokens = 2048},
      GpuSpec{.name = "h100",
              .memory_bytes = 79.1 * kGiB,
              .flops = 989.4e12,
              .memory_bandwidth = 3.35e12,
              .link_bandwidth = 450e9,
              .server_max_num_seqs = 1024,
              .server_max_num_batched_tokens = 8192},
      GpuSpec{.name = "h200",
              .memory_bytes = 139.8 * kGiB,
              .flops = 989.4e12,
              .memory_bandwidth = 4.8e12,
              .link_bandwidth = 450e9,
              .server_max_num_seqs = 1024,
              .server_max_num_batched_tokens = 8192},
  };
  return gpus;
}

std::optional<ModelSpec> ModelByName(std::string_view name) { return ByName(KnownModels(), name); }
std::optional<GpuSpec> GpuByName(std::string_view name) { return ByName(KnownGpus(), name); }

double KvCapacityTokens(const ModelSpec& model, const GpuSpec& gpu, std::int32_t num_gpus,
                        double memory_utilization, double reserved_bytes) {
  const double for_kv =
      num_gpus * (gpu.memory_bytes * memory_utilization - reserved_bytes) - model.weight_bytes();
  return for_kv / model.kv_bytes_per_token();
}

}  // namespace tally
