#include "conformance/level.h"

#include <cstddef>

namespace tally {
namespace {

// Segments of a pattern are parted by '/'. "*" is any segment, "name*" any that starts so; a
// pattern speaks for everything below it. The first one that matches decides.
struct Rule {
  std::string_view pattern;
  Level level;
};

constexpr Rule kRules[] = {
    {"*/error", Level::kAccounting},
    {"*/message", Level::kDecisions},

    {"schedule/new/*/1", Level::kBlocks},
    {"schedule/cached/*/1", Level::kBlocks},
    {"schedule/common_prefix", Level::kBlocks},
    {"schedule/running", Level::kBlocks},
    {"schedule/waiting", Level::kBlocks},
    {"schedule/skipped", Level::kBlocks},
    {"schedule/connector", Level::kBlocks},
    {"*/free_blocks", Level::kBlocks},

    {"update/outputs/*/events", Level::kDecisions},
    {"update/outputs/*/kv", Level::kBlocks},
    {"update/outputs", Level::kAccounting},
    {"update/events", Level::kBlocks},
    {"update/stats/kv_usage", Level::kBlocks},

    {"abort/aborted", Level::kAccounting},

    {"metrics/metrics/vllm:prompt_tokens*", Level::kAccounting},
    {"metrics/metrics/vllm:generation_tokens*", Level::kAccounting},
    {"metrics/metrics/vllm:request_success*", Level::kAccounting},
    {"metrics/metrics/vllm:request_prompt_tokens*", Level::kAccounting},
    {"metrics/metrics/vllm:request_generation_tokens*", Level::kAccounting},
    {"metrics/metrics/vllm:request_prefill_kv_computed_tokens*", Level::kAccounting},
    {"metrics/metrics/vllm:kv_cache_usage_perc", Level::kBlocks},
    {"metrics/metrics/*", Level::kDecisions},
    {"metrics/metrics", Level::kAccounting},
};

bool MatchesSegment(std::string_view pattern, std::string_view segment) {
  if (!pattern.empty() && pattern.back() == '*') {
    pattern.remove_suffix(1);
    return segment.substr(0, pattern.size()) == pattern;
  }
  return pattern == segment;
}

bool Matches(std::string_view pattern, std::span<const std::string_view> path) {
  for (std::size_t i = 0; !pattern.empty(); ++i) {
    if (i == path.size()) return false;
    const std::size_t slash = pattern.find('/');
    if (!MatchesSegment(pattern.substr(0, slash), path[i])) return false;
    pattern = slash == std::string_view::npos ? std::string_view() : pattern.substr(slash + 1);
  }
  return true;
}

}  // namespace

Level LevelOf(std::span<const std::string_view> path) {
  for (const Rule& rule : kRules) {
    if (Matches(rule.pattern, path)) return rule.level;
  }
  return Level::kDecisions;
}

}  // namespace tally
