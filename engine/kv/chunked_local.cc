#include "engine/kv/chunked_local.h"

#include <array>

namespace tally {

ChunkedLocal::ChunkedLocal(const KvGroupSpec& spec, std::uint32_t index, BlockPool& pool,
                           BlockTableStore& tables, std::int32_t max_model_len,
                           std::int32_t max_num_batched_tokens)
    : AttentionGroup(spec, index, pool, tables) {
  const std::int64_t live_tokens =
      std::min<std::int64_t>(std::int64_t{spec.chunk} + max_num_batched_tokens, max_model_len);
  block_cap_ = CeilDiv(static_cast<std::int32_t>(live_tokens), spec.block_size);
}

void ChunkedLocal::FindLongestHit(const HitQuery& query, std::span<AttentionGroup* const> joint,
                                  std::span<std::vector<BlockId>* const> hits) const {
  const auto max_blocks =
      std::min(static_cast<std::size_t>(query.max_tokens / block_size()), query.hashes.size());
  const auto past = std::min(
      static_cast<std::size_t>(SkippedTokens(query.max_tokens) / block_size()), max_blocks);
  for (std::vector<BlockId>* blocks : hits) blocks->assign(past, kNullBlock);
  std::array<BlockId, kMaxKvGroups> found;
  for (std::size_t i = past; i < max_blocks && FindInAll(query.hashes[i], joint, found); ++i) {
    for (std::size_t group = 0; group < hits.size(); ++group) hits[group]->push_back(found[group]);
  }
}

std::int32_t ChunkedLocal::NextSkip(RequestHandle request) const {
  // The end of the first chunk that covers the first block still held.
  const std::int64_t tokens = (std::int64_t{LeadingNulls(request)} + 1) * block_size();
  const std::int64_t computed = (tokens + spec_.chunk - 1) / spec_.chunk * spec_.chunk;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(computed, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace tally
