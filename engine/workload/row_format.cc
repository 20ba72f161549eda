#include "engine/workload/row_format.h"

#include <algorithm>

#include "engine/base/types.h"
#include "engine/workload/token_expansion.h"

namespace tally {
namespace {

void AddOwnTokens(std::int32_t num_tokens, WorkloadRequest& request) {
  if (num_tokens == 0) return;
  request.segments.push_back(
      {StreamSeed(StreamKind::kOwnPrompt, static_cast<std::uint64_t>(request.row), 0), num_tokens});
}

}  // namespace

std::string Excerpt(std::string_view text) {
  constexpr std::size_t kMost = 40;
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  std::string excerpt(text.substr(0, kMost));
  for (char& c : excerpt) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  if (text.size() > kMost) excerpt += "...";
  return excerpt;
}

bool SetHashedPrompt(const std::vector<std::uint64_t>& ids, std::int32_t tokens_per_hash,
                     WorkloadRequest& request) {
  const std::int32_t num_tokens = request.num_prompt_tokens;
  const auto count = static_cast<std::int64_t>(ids.size());
  if (count != num_tokens / tokens_per_hash && count != CeilDiv(num_tokens, tokens_per_hash)) {
    return false;
  }
  request.segments.clear();
  request.segments.reserve(ids.size() + 1);
  std::int32_t left = num_tokens;
  for (const std::uint64_t id : ids) {
    const std::int32_t length = std::min(left, tokens_per_hash);
    request.segments.push_back({StreamSeed(StreamKind::kSharedBlock, id, 0), length});
    left -= length;
  }
  request.num_shared_segments = static_cast<std::int32_t>(ids.size());
  AddOwnTokens(left, request);
  return true;
}

void SetOwnPrompt(WorkloadRequest& request) {
  request.segments.clear();
  request.num_shared_segments = 0;
  AddOwnTokens(request.num_prompt_tokens, request);
}

}  // namespace tally
