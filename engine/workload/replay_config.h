// The configuration of a replay: an engine, the model and GPU it stands for, and a step-time model.
//
// Settings come from a JSON file and from flags; what neither gives has the value that a vLLM
// server has on that GPU (scheduler.md section 8).
#ifndef TALLY_ENGINE_WORKLOAD_REPLAY_CONFIG_H_
#define TALLY_ENGINE_WORKLOAD_REPLAY_CONFIG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/connector/offload_policy.h"
#include "engine/core/engine_config.h"
#include "engine/workload/hardware.h"
#include "engine/workload/step_time_model.h"

namespace tally {

// What was asked for; absent: the default.
struct ReplaySettings {
  std::optional<std::string> model;  // a name of hardware.h
  std::optional<ModelSpec> custom_model;
  std::optional<std::string> gpu;
  std::optional<GpuSpec> custom_gpu;
  std::optional<std::int32_t> tensor_parallel_size;  // 1, 2, 4, ... GPUs
  std::optional<double> gpu_memory_utilization;
  std::optional<double> reserved_gib;  // a GPU, beside weights and KV
  std::optional<std::int32_t> num_blocks;
  std::optional<std::int32_t> block_size;
  std::optional<std::int32_t> max_num_seqs;
  std::optional<std::int32_t> max_num_batched_tokens;
  std::optional<std::int32_t> max_model_len;
  std::optional<std::int32_t> long_prefill_token_threshold;
  std::optional<bool> enable_chunked_prefill;
  std::optional<bool> enable_prefix_caching;
  std::optional<bool> scheduler_reserve_full_isl;
  std::optional<bool> async_scheduling;
  std::optional<std::string> policy;
  std::optional<std::string> behavior;

  // connector
  std::optional<std::string> connector;           // "none", "offload" or "store"
  std::optional<double> connector_gib;            // what it holds
  std::optional<double> connector_gb_s;           // of its link, each way
  std::optional<std::string> connector_eviction;  // "lru" or "arc"

  // step_time
  std::optional<double> compute_efficiency;
  std::optional<double> memory_efficiency;
  std::optional<double> fixed_overhead_ms;
  std::optional<double> per_request_overhead_us;
  std::optional<double> all_reduce_latency_us;
  std::optional<LinearParameters> linear;  // in place of the roofline
};

// Reads a configuration file's text. Every message names the key's path, the value and what was
// expected.
absl::StatusOr<ReplaySettings> ParseReplaySettings(std::string_view json);

// Settings of `over` win.
ReplaySettings Override(ReplaySettings base, const ReplaySettings& over);

// A larger, slower store of KV blocks beside the engine.
struct ReplayConnector {
  std::string kind;              // "offload": host memory; "store": a store over the network
  std::uint32_t num_blocks = 0;  // of the engine's size
  double bytes_per_second = 0;   // of its link, each way
  EvictionPolicy eviction = EvictionPolicy::kLru;
};

struct ReplayConfig {
  EngineConfig engine;
  std::optional<ReplayConnector> connector;
  ModelSpec model;
  GpuSpec gpu;
  std::int32_t num_gpus = 1;
  bool blocks_were_given = false;
  std::shared_ptr<const StepTimeModel> step_time;
};

// Fills defaults in, finds the number of KV blocks and checks everything.
absl::StatusOr<ReplayConfig> ResolveReplayConfig(const ReplaySettings& settings);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_REPLAY_CONFIG_H_
