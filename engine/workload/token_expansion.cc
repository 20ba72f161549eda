#include "engine/workload/token_expansion.h"

#include "engine/base/check.h"

namespace tally {

void ExpandPrompt(const WorkloadRequest& request, std::vector<TokenId>& tokens) {
  if (!request.tokens.empty()) {
    tokens = request.tokens;
    return;
  }
  tokens.resize(static_cast<std::size_t>(request.num_prompt_tokens));
  std::size_t place = 0;
  for (const PromptSegment& segment : request.segments) {
    const auto length = static_cast<std::size_t>(segment.num_tokens);
    TALLY_CHECK(length <= tokens.size() - place, "segments exceed %d tokens",
                request.num_prompt_tokens);
    for (std::size_t i = 0; i < length; ++i) tokens[place + i] = StreamToken(segment.seed, i);
    place += length;
  }
  TALLY_CHECK(place == tokens.size(), "segments hold %zu of %zu tokens", place, tokens.size());
}

}  // namespace tally
