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
  } else if (type != "full") {
    fields.Fail("type", Shortened(type), "full or sliding_window");
  }
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  return group;
}

}  // namespace

absl::StatusOr<EngineConfig> ParseConfig(simdjson::dom::object object,
                                         const EngineConfig& defaults) {
  EngineConfig config = defaults;
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

  fields.Unsupported("kv_events", "no KV events");
  fields.Unsupported("max_loras", "no LoRA");
  fields.Unsupported("encoder_budget", "no encoder inputs");
  fields.Unsupported("encoder_cache_size", "no encoder inputs");
  fields.Unsupported("disable_chunked_mm_input", "no encoder inputs");
  fields.Unsupported("connector", "no connectors");

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
  return config;
}

}  // namespace tally
