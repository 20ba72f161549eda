#include "engine/workload/replay_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/workload/config_reader.h"

namespace tally {
namespace {

constexpr std::int64_t kMostTokens = 1 << 29;
constexpr std::int32_t kMostGpus = 8;  // one node
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

template <typename Specs>
std::vector<std::string> Names(const Specs& specs) {
  std::vector<std::string> names;
  for (const auto& spec : specs) names.push_back(spec.name);
  return names;
}

absl::StatusOr<ModelSpec> ParseModel(const nlohmann::json& json) {
  ConfigReader reader(json, "model");
  std::optional<std::string> name;
  std::optional<double> parameters, embedding, bytes_per_parameter, bytes_per_kv_element;
  std::optional<std::int32_t> layers, hidden, heads, kv_heads, head_size, max_model_len;
  reader.Text("name", {}, name);
  reader.Number("num_parameters", 0, 1e15, parameters);
  reader.NumberFromZero("num_embedding_parameters", 1e12, embedding);
  reader.Integer("num_layers", 1, 10'000, layers);
  reader.Integer("hidden_size", 1, 1'000'000, hidden);
  reader.Integer("num_heads", 1, 10'000, heads);
  reader.Integer("num_kv_heads", 1, 10'000, kv_heads);
  reader.Integer("head_size", 1, 10'000, head_size);
  reader.Integer("max_model_len", 1, kMostTokens, max_model_len);
  reader.Number("bytes_per_parameter", 0, 8, bytes_per_parameter);
  reader.Number("bytes_per_kv_element", 0, 8, bytes_per_kv_element);
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  if (!parameters || !layers || !hidden || !heads || !kv_heads || !head_size || !max_model_len) {
    return absl::InvalidArgumentError(
        "model: incomplete, wanted num_parameters, num_layers, hidden_size, num_heads, "
        "num_kv_heads, head_size and max_model_len");
  }
  return ModelSpec{.name = name.value_or("custom"),
                   .num_parameters = *parameters,
                   .num_embedding_parameters = std::min(embedding.value_or(0), *parameters / 2),
                   .num_layers = *layers,
                   .hidden_size = *hidden,
                   .num_heads = *heads,
                   .num_kv_heads = *kv_heads,
                   .head_size = *head_size,
                   .max_model_len = *max_model_len,
                   .bytes_per_parameter = bytes_per_parameter.value_or(2),
                   .bytes_per_kv_element = bytes_per_kv_element.value_or(2)};
}

absl::StatusOr<GpuSpec> ParseGpu(const nlohmann::json& json) {
  ConfigReader reader(json, "gpu");
  std::optional<std::string> name;
  std::optional<double> memory, tflops, bandwidth, link;
  reader.Text("name", {}, name);
  reader.Number("memory_gib", 0, 1e6, memory);
  reader.Number("tflops", 0, 1e6, tflops);
  reader.Number("memory_bandwidth_gb_s", 0, 1e6, bandwidth);
  reader.Number("link_bandwidth_gb_s", 0, 1e6, link);
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  if (!memory || !tflops || !bandwidth) {
    return absl::InvalidArgumentError(
        "gpu: incomplete, wanted memory_gib, tflops and memory_bandwidth_gb_s");
  }
  const bool large = *memory >= 70;
  return GpuSpec{.name = name.value_or("custom"),
                 .memory_bytes = *memory * kGiB,
                 .flops = *tflops * 1e12,
                 .memory_bandwidth = *bandwidth * 1e9,
                 .link_bandwidth = link.value_or(32) * 1e9,  // PCIe 4.0 x16
                 .server_max_num_seqs = large ? 1024 : 256,
                 .server_max_num_batched_tokens = large ? 8192 : 2048};
}

absl::Status ParseStepTime(const nlohmann::json& json, ReplaySettings& settings) {
  ConfigReader reader(json, "step_time");
  std::optional<std::string> kind;
  reader.Text("kind", {"roofline", "linear"}, kind);
  if (kind.value_or("roofline") == "roofline") {
    reader.Number("compute_efficiency", 0, 1, settings.compute_efficiency);
    reader.Number("memory_efficiency", 0, 1, settings.memory_efficiency);
    reader.NumberFromZero("fixed_overhead_ms", 1e6, settings.fixed_overhead_ms);
    reader.NumberFromZero("per_request_overhead_us", 1e6, settings.per_request_overhead_us);
    reader.NumberFromZero("all_reduce_latency_us", 1e6, settings.all_reduce_latency_us);
    return reader.Finish();
  }
  std::optional<double> fixed, request, prefill, decode, context;
  reader.Number("fixed_ms", 0, 1e6, fixed);
  reader.NumberFromZero("per_request_us", 1e6, request);
  reader.NumberFromZero("per_prefill_token_us", 1e6, prefill);
  reader.NumberFromZero("per_decode_token_us", 1e6, decode);
  reader.NumberFromZero("per_context_token_ns", 1e6, context);
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  if (!fixed) {
    // Without it a step could take no time, and virtual time would stand still.
    return absl::InvalidArgumentError("step_time.fixed_ms: missing, wanted a number above 0");
  }
  settings.linear = LinearParameters{.fixed = *fixed * 1e-3,
                                     .per_request = request.value_or(0) * 1e-6,
                                     .per_prefill_token = prefill.value_or(0) * 1e-6,
                                     .per_decode_token = decode.value_or(0) * 1e-6,
                                     .per_context_token = context.value_or(0) * 1e-9};
  return absl::OkStatus();
}

// As many GPUs as it takes to hold the weights and one sequence of the longest kind.
std::int32_t SmallestTensorParallelSize(const ModelSpec& model, const GpuSpec& gpu,
                                        double utilization, double reserved,
                                        std::int32_t max_model_len) {
  std::int32_t size = 1;
  while (size < kMostGpus &&
         KvCapacityTokens(model, gpu, size, utilization, reserved) < max_model_len) {
    size *= 2;
  }
  return size;
}

absl::Status UnknownName(std::string_view key, std::string_view name,
                         const std::vector<std::string>& names);

// Host memory behind a PCIe 5.0 x16 link of each GPU (about 55 GB/s of its 63 in practice), or a
// store behind a network card of 400 Gbit/s a server; sizes as they are bought with such servers.
absl::Status ResolveConnector(const ReplaySettings& settings, ReplayConfig& config) {
  const std::string kind = settings.connector.value_or("none");
  if (kind == "none") {
    if (!settings.connector_gib && !settings.connector_gb_s && !settings.connector_eviction)
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        "connector: none, wanted offload or store with a size, a bandwidth or an eviction policy");
  }
  if (kind != "offload" && kind != "store")
    return UnknownName("connector", kind, {"none", "offload", "store"});
  const bool host = kind == "offload";
  const std::string eviction = settings.connector_eviction.value_or("lru");
  if (eviction != "lru" && eviction != "arc")
    return UnknownName("connector.eviction", eviction, {"lru", "arc"});
  const double bytes = settings.connector_gib.value_or(host ? 256 : 4096) * kGiB;
  const double block_bytes = config.model.kv_bytes_per_token() * config.engine.kv.block_size;
  const double blocks = std::floor(bytes / block_bytes);
  constexpr double kMostBlocks = 1 << 28;
  if (blocks < 1 || blocks > kMostBlocks) {
    return absl::InvalidArgumentError(
        fmt::format("connector.gib: {:g} holds {:.0f} blocks of {:.0f} bytes, wanted 1 to {:.0f}",
                    bytes / kGiB, blocks, block_bytes, kMostBlocks));
  }
  const double bandwidth = settings.connector_gb_s.value_or(host ? 55 * config.num_gpus : 50);
  config.connector =
      ReplayConnector{.kind = kind,
                      .num_blocks = static_cast<std::uint32_t>(blocks),
                      .bytes_per_second = bandwidth * 1e9,
                      .eviction = eviction == "arc" ? EvictionPolicy::kArc : EvictionPolicy::kLru};
  return absl::OkStatus();
}

absl::Status UnknownName(std::string_view key, std::string_view name,
                         const std::vector<std::string>& names) {
  return absl::InvalidArgumentError(
      fmt::format("{}: \"{}\", wanted one of {}", key, name, fmt::join(names, ", ")));
}

}  // namespace

absl::StatusOr<ReplaySettings> ParseReplaySettings(std::string_view text) {
  const absl::StatusOr<nlohmann::json> json = ParseConfig(text);
  if (!json.ok()) return json.status();
  ReplaySettings settings;
  ConfigReader reader(*json, "");
  const nlohmann::json* model = reader.Any("model");
  const nlohmann::json* gpu = reader.Any("gpu");
  const nlohmann::json* step_time = reader.Any("step_time");
  const nlohmann::json* connector = reader.Any("connector");
  reader.Integer("tensor_parallel_size", 1, kMostGpus, settings.tensor_parallel_size);
  reader.Number("gpu_memory_utilization", 0, 1, settings.gpu_memory_utilization);
  reader.NumberFromZero("reserved_gib", 1e6, settings.reserved_gib);
  reader.Integer("num_blocks", 2, kMostTokens, settings.num_blocks);
  reader.Integer("block_size", 1, 1 << 20, settings.block_size);
  reader.Integer("max_num_seqs", 1, 1 << 20, settings.max_num_seqs);
  reader.Integer("max_num_batched_tokens", 1, kMostTokens, settings.max_num_batched_tokens);
  reader.Integer("max_model_len", 2, kMostTokens, settings.max_model_len);
  reader.Integer("long_prefill_token_threshold", 0, kMostTokens,
                 settings.long_prefill_token_threshold);
  reader.Flag("enable_chunked_prefill", settings.enable_chunked_prefill);
  reader.Flag("enable_prefix_caching", settings.enable_prefix_caching);
  reader.Flag("scheduler_reserve_full_isl", settings.scheduler_reserve_full_isl);
  reader.Flag("async_scheduling", settings.async_scheduling);
  reader.Text("policy", {"fcfs", "priority"}, settings.policy);
  reader.Text("behavior", {"corrected", "vllm_0_20"}, settings.behavior);
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  if (model != nullptr && model->is_string()) {
    settings.model = model->get<std::string>();
  } else if (model != nullptr) {
    absl::StatusOr<ModelSpec> custom = ParseModel(*model);
    if (!custom.ok()) return custom.status();
    settings.custom_model = *std::move(custom);
  }
  if (gpu != nullptr && gpu->is_string()) {
    settings.gpu = gpu->get<std::string>();
  } else if (gpu != nullptr) {
    absl::StatusOr<GpuSpec> custom = ParseGpu(*gpu);
    if (!custom.ok()) return custom.status();
    settings.custom_gpu = *std::move(custom);
  }
  if (connector != nullptr) {
    ConfigReader keys(*connector, "connector");
    keys.Text("kind", {"none", "offload", "store"}, settings.connector);
    keys.Number("gib", 0, 1e7, settings.connector_gib);
    keys.Number("gb_s", 0, 1e6, settings.connector_gb_s);
    keys.Text("eviction", {"lru", "arc"}, settings.connector_eviction);
    if (absl::Status status = keys.Finish(); !status.ok()) return status;
    if (!settings.connector) {
      return absl::InvalidArgumentError("connector.kind: missing, wanted none, offload or store");
    }
  }
  if (step_time != nullptr) {
    if (absl::Status status = ParseStepTime(*step_time, settings); !status.ok()) return status;
  }
  return settings;
}

ReplaySettings Override(ReplaySettings base, const ReplaySettings& over) {
  const auto take = [&](auto member) {
    if ((over.*member).has_value()) base.*member = over.*member;
  };
  if (over.model.has_value()) base.custom_model.reset();
  if (over.gpu.has_value()) base.custom_gpu.reset();
  take(&ReplaySettings::model);
  take(&ReplaySettings::custom_model);
  take(&ReplaySettings::gpu);
  take(&ReplaySettings::custom_gpu);
  take(&ReplaySettings::tensor_parallel_size);
  take(&ReplaySettings::gpu_memory_utilization);
  take(&ReplaySettings::reserved_gib);
  take(&ReplaySettings::num_blocks);
  take(&ReplaySettings::block_size);
  take(&ReplaySettings::max_num_seqs);
  take(&ReplaySettings::max_num_batched_tokens);
  take(&ReplaySettings::max_model_len);
  take(&ReplaySettings::long_prefill_token_threshold);
  take(&ReplaySettings::enable_chunked_prefill);
  take(&ReplaySettings::enable_prefix_caching);
  take(&ReplaySettings::scheduler_reserve_full_isl);
  take(&ReplaySettings::async_scheduling);
  take(&ReplaySettings::policy);
  take(&ReplaySettings::behavior);
  take(&ReplaySettings::connector);
  take(&ReplaySettings::connector_gib);
  take(&ReplaySettings::connector_gb_s);
  take(&ReplaySettings::connector_eviction);
  take(&ReplaySettings::compute_efficiency);
  take(&ReplaySettings::memory_efficiency);
  take(&ReplaySettings::fixed_overhead_ms);
  take(&ReplaySettings::per_request_overhead_us);
  take(&ReplaySettings::all_reduce_latency_us);
  take(&ReplaySettings::linear);
  return base;
}

absl::StatusOr<ReplayConfig> ResolveReplayConfig(const ReplaySettings& settings) {
  ReplayConfig config;
  if (settings.custom_model.has_value()) {
    config.model = *settings.custom_model;
  } else {
    const std::string name = settings.model.value_or("llama-3.1-8b");
    const std::optional<ModelSpec> model = ModelByName(name);
    if (!model.has_value()) return UnknownName("model", name, Names(KnownModels()));
    config.model = *model;
  }
  if (settings.custom_gpu.has_value()) {
    config.gpu = *settings.custom_gpu;
  } else {
    const std::string name = settings.gpu.value_or("h100");
    const std::optional<GpuSpec> gpu = GpuByName(name);
    if (!gpu.has_value()) return UnknownName("gpu", name, Names(KnownGpus()));
    config.gpu = *gpu;
  }

  EngineConfig& engine = config.engine;
  engine.max_model_len = settings.max_model_len.value_or(config.model.max_model_len);
  engine.enable_chunked_prefill = settings.enable_chunked_prefill.value_or(true);
  // vLLM's rules for what is not given: see the table and CFG-2 in scheduler.md section 8.
  std::int64_t batched = config.gpu.server_max_num_batched_tokens;
  if (!engine.enable_chunked_prefill)
    batched = std::max<std::int64_t>(batched, engine.max_model_len);
  const std::int64_t seqs = settings.max_num_seqs.value_or(config.gpu.server_max_num_seqs);
  batched = std::min(batched, seqs * engine.max_model_len);
  engine.max_num_batched_tokens =
      settings.max_num_batched_tokens.value_or(static_cast<std::int32_t>(batched));
  engine.max_num_seqs = settings.max_num_seqs.value_or(
      std::min(config.gpu.server_max_num_seqs, engine.max_num_batched_tokens));
  engine.long_prefill_token_threshold = settings.long_prefill_token_threshold.value_or(0);
  engine.scheduler_reserve_full_isl = settings.scheduler_reserve_full_isl.value_or(true);
  engine.async_scheduling = settings.async_scheduling.value_or(true);
  const std::string policy = settings.policy.value_or("fcfs");
  if (policy != "fcfs" && policy != "priority") {
    return UnknownName("policy", policy, {"fcfs", "priority"});
  }
  engine.policy = policy == "fcfs" ? SchedulingPolicy::kFcfs : SchedulingPolicy::kPriority;
  const std::string behavior = settings.behavior.value_or("corrected");
  const std::optional<Behavior> known = BehaviorByName(behavior);
  if (!known.has_value()) return UnknownName("behavior", behavior, {"corrected", "vllm_0_20"});
  engine.behavior = *known;

  // The share of its memory that a vLLM server takes unless told otherwise.
  const double utilization = settings.gpu_memory_utilization.value_or(0.9);
  // Activations of one step and CUDA graphs; engines report 1 to 2 GiB for these models.
  const double reserved = settings.reserved_gib.value_or(1.5) * kGiB;
  config.num_gpus = settings.tensor_parallel_size.value_or(SmallestTensorParallelSize(
      config.model, config.gpu, utilization, reserved, engine.max_model_len));
  engine.kv.block_size = settings.block_size.value_or(16);
  engine.kv.enable_prefix_caching = settings.enable_prefix_caching.value_or(true);
  config.blocks_were_given = settings.num_blocks.has_value();
  if (config.blocks_were_given) {
    engine.kv.num_blocks = static_cast<std::uint32_t>(*settings.num_blocks);
  } else {
    const double tokens =
        KvCapacityTokens(config.model, config.gpu, config.num_gpus, utilization, reserved);
    const double blocks = std::floor(tokens / engine.kv.block_size);
    if (blocks < 2 || blocks > static_cast<double>(kMostTokens)) {
      return absl::InvalidArgumentError(fmt::format(
          "model: {} on {} x {} leaves room for {:.0f} tokens of KV, wanted room for 2 to {} "
          "blocks; give num_blocks, more GPUs (tensor_parallel_size) or more memory "
          "(gpu_memory_utilization)",
          config.model.name, config.num_gpus, config.gpu.name, std::max(tokens, 0.0), kMostTokens));
    }
    engine.kv.num_blocks = static_cast<std::uint32_t>(blocks);
  }
  if (absl::Status status = engine.Validate(); !status.ok()) return status;
  if (absl::Status status = ResolveConnector(settings, config); !status.ok()) return status;

  if (settings.linear.has_value()) {
    config.step_time = std::make_shared<LinearModel>(*settings.linear);
    return config;
  }
  RooflineParameters roofline{
      .model = config.model, .gpu = config.gpu, .num_gpus = config.num_gpus};
  const auto set = [](double& value, const std::optional<double>& given, double unit) {
    if (given.has_value()) value = *given * unit;
  };
  set(roofline.compute_efficiency, settings.compute_efficiency, 1);
  set(roofline.memory_efficiency, settings.memory_efficiency, 1);
  set(roofline.fixed_overhead, settings.fixed_overhead_ms, 1e-3);
  set(roofline.per_request_overhead, settings.per_request_overhead_us, 1e-6);
  set(roofline.all_reduce_latency, settings.all_reduce_latency_us, 1e-6);
  config.step_time = std::make_shared<RooflineModel>(roofline);
  return config;
}

}  // namespace tally
