#include "engine/workload/prefix_bound.h"

#include <xxhash.h>

#include "engine/workload/token_expansion.h"

namespace tally {

void PrefixBound::Add(const WorkloadRequest& request) {
  num_prompt_tokens_ += request.num_prompt_tokens;
  bool known = true;
  for (std::int32_t i = 0; i < request.num_shared_segments; ++i) {
    const PromptSegment& segment = request.segments[static_cast<std::size_t>(i)];
    const bool seen = !seen_.insert(segment.seed).second;
    known = known && seen;
    if (known) num_reusable_tokens_ += segment.num_tokens;
  }
  if (request.tokens.empty()) return;
  std::uint64_t prefix = XXH3_64bits(request.cache_salt.data(), request.cache_salt.size());
  for (const TokenId token : request.tokens) {
    prefix = Mix(prefix + static_cast<std::uint64_t>(token) + 1);
    known = !seen_.insert(prefix).second && known;
    if (known) ++num_reusable_tokens_;
  }
}

double PrefixBound::fraction() const {
  if (num_prompt_tokens_ == 0) return 0;
  return static_cast<double>(num_reusable_tokens_) / static_cast<double>(num_prompt_tokens_);
}

}  // namespace tally
