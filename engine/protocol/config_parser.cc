#include "engine/protocol/config_parser.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/protocol/json_fields.h"

namespace tally {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 29;
// A block costs 64 bytes of bookkeeping: 1 GiB at most.
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 24;
constexpr std::size_t kMostConnectors = 8;  // in a multi connector

absl::StatusOr<KvGroupSpec> ParseGroup(std::string_view name, simdjson::dom::element value) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(name), ": ", QuoteJson(value), ", wanted an object"));
  }
  JsonFields fields(name, object);
  KvGroupSpec group;
  group.block_size = static_cast<std::int32_t>(fields.Int("block_size", 1, kMostTokens));
  const std::string_view type = fields.String("type", "full");
  if (type == "sliding_window") {
    group.kind = AttentionKind::kSlidingWindow;
    group.window = static_cast<std::int32_t>(fields.Int("window", 1, kMostTokens));
  } else if (type == "chunked_local") {
    group.kind = AttentionKind::kChunkedLocal;
    group.chunk = static_cast<std::int32_t>(fields.Int("chunk", 1, kMostTokens));
  } else if (type == "mamba") {
    group.kind = AttentionKind::kMamba;
    group.speculative_blocks =
        static_cast<std::int32_t>(fields.Int("speculative_blocks", 0, 1024, 0));
    const std::string_view mode = fields.String("mode");
    group.mamba_mode = mode == "all"     ? MambaMode::kAll
                       : mode == "align" ? MambaMode::kAlign
                                         : MambaMode::kNone;
    if (mode != "none" && mode != "all" && mode != "align")
      fields.Fail("mode", Shortened(mode), "none, all or align");
  } else if (type == "cross_attention") {
    group.kind = AttentionKind::kCross;
  } else if (type != "full") {
    fields.Fail("type", Shortened(type),
                "full, sliding_window, chunked_local, mamba or cross_attention");
  }
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  return group;
}

// The policy for failed loads is read from the outermost connector into `config`.
absl::StatusOr<ConnectorConfig> ParseConnector(std::string_view name, simdjson::dom::object object,
                                               bool outermost, EngineConfig& config) {
  JsonFields fields(name, object);
  ConnectorConfig connector;
  if (outermost) {
    const std::string_view policy = fields.String("load_failure_policy", "recompute");
    if (policy != "recompute" && policy != "fail")
      fields.Fail("load_failure_policy", Shortened(policy), "recompute or fail");
    config.load_failure_policy =
        policy == "fail" ? LoadFailurePolicy::kFail : LoadFailurePolicy::kRecompute;
  }
  const std::string_view type = fields.String("type");
  if (type == "scripted") {
    connector.type = ConnectorConfig::Type::kScripted;
  } else if (type == "nixl") {
    connector.type = ConnectorConfig::Type::kNixl;
  } else if (type == "offloading") {
    connector.type = ConnectorConfig::Type::kOffloading;
    connector.offloading.num_cpu_blocks =
        static_cast<std::uint32_t>(fields.Int("num_cpu_blocks", 1, kMostBlocks));
    connector.offloading.block_size =
        static_cast<std::int32_t>(fields.Int("block_size", 1, kMostTokens));
    const std::string_view eviction = fields.String("eviction", "lru");
    if (eviction != "lru" && eviction != "arc")
      fields.Fail("eviction", Shortened(eviction), "lru or arc");
    connector.offloading.eviction = eviction == "arc" ? EvictionPolicy::kArc : EvictionPolicy::kLru;
  } else if (type == "multi" && outermost) {
    connector.type = ConnectorConfig::Type::kMulti;
    const auto children = fields.Array("connectors");
    if (!children && fields.ok()) fields.Fail("connectors", "missing", "a list of connectors");
    for (std::size_t place = 0; fields.ok() && place < children->size(); ++place) {
      const std::string child_name = absl::StrCat(std::string(name), ".connectors[", place, "]");
      simdjson::dom::object child;
      if (children->at(place).get(child) != simdjson::SUCCESS) {
        return absl::InvalidArgumentError(absl::StrCat(
            child_name, ": ", QuoteJson(children->at(place).value()), ", wanted an object"));
      }
      if (place == kMostConnectors) {
        fields.Fail("connectors", "more", absl::StrCat("at most ", kMostConnectors));
        break;
      }
      auto made = ParseConnector(child_name, child, false, config);
      if (!made.ok()) return made.status();
      connector.children.push_back(*std::move(made));
    }
  } else {
    fields.Fail("type", Shortened(type),
                outermost ? "scripted, nixl, offloading or multi" : "scripted, nixl or offloading");
  }
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  return connector;
}

}  // namespace

absl::StatusOr<TraceConfig> ParseConfig(simdjson::dom::object object,
                                        const EngineConfig& defaults) {
  TraceConfig parsed{.engine = defaults, .connector = std::nullopt};
  EngineConfig& config = parsed.engine;
  JsonFields fields("config", object);
  const auto tokens = [&](std::string_view key, std::int64_t least) {
    return static_cast<std::int32_t>(fields.Int(key, least, kMostTokens));
  };
  config.kv.block_size = tokens("block_size", 1);
  config.kv.num_blocks = static_cast<std::uint32_t>(fields.Int("num_blocks", 1, kMostBlocks));
  config.max_num_seqs = tokens("max_num_seqs", 1);
  config.max_num_batched_tokens = tokens("max_num_batched_tokens", 1);
  config.max_model_len = tokens("max_model_len", 1);
  config.kv.enable_prefix_caching = fields.Bool("enable_prefix_caching", true);
  config.enable_chunked_prefill = fields.Bool("enable_chunked_prefill", true);
  config.long_prefill_token_threshold =
      static_cast<std::int32_t>(fields.Int("long_prefill_token_threshold", 0, kMostTokens, 0));
  const std::string_view policy = fields.String("policy", "fcfs");
  if (policy != "fcfs" && policy != "priority")
    fields.Fail("policy", Shortened(policy), "fcfs or priority");
  config.policy = policy == "priority" ? SchedulingPolicy::kPriority : SchedulingPolicy::kFcfs;
  config.scheduler_reserve_full_isl = fields.Bool("scheduler_reserve_full_isl", true);
  config.async_scheduling = fields.Bool("async_scheduling", false);
  config.num_speculative_tokens =
      static_cast<std::int32_t>(fields.Int("num_speculative_tokens", 0, 1024, 0));
  config.use_eagle = fields.Bool("use_eagle", false);

  config.kv_events = fields.Bool("kv_events", false);
  // The hashes that events carry are those that every engine computes alike.
  if (config.kv_events) config.kv.hash_algorithm = HashAlgorithm::kSha256Cbor;
  config.max_loras = static_cast<std::int32_t>(fields.Int("max_loras", 0, kMostTokens, 0));
  config.encoder_budget =
      static_cast<std::int32_t>(fields.Int("encoder_budget", 0, kMostTokens, 0));
  config.encoder_cache_size =
      static_cast<std::int32_t>(fields.Int("encoder_cache_size", 0, kMostTokens, 0));
  config.disable_chunked_mm_input = fields.Bool("disable_chunked_mm_input", false);
  config.encoder_decoder = fields.Bool("encoder_decoder", false);
  // Only tells how many steps may be outstanding, which the commands show.
  fields.Int("pipeline_parallel_size", 1, 1024, 1);
  if (const auto connector = fields.Object("connector"); connector && fields.ok()) {
    auto made = ParseConnector("config.connector", *connector, true, config);
    if (!made.ok()) return made.status();
    parsed.connector = *std::move(made);
  }

  config.kv.groups.clear();
  if (const auto groups = fields.Array("groups"); groups && fields.ok()) {
    std::size_t place = 0;
    for (const simdjson::dom::element value : *groups) {
      if (place == kMaxKvGroups) {
        fields.Fail("groups", "more", absl::StrCat("at most ", kMaxKvGroups, " groups"));
        break;
      }
      auto group = ParseGroup(absl::StrCat("config.groups[", place, "]"), value);
      if (!group.ok()) return group.status();
      config.kv.groups.push_back(*group);
      ++place;
    }
  }
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  return parsed;
}

}  // namespace tally
