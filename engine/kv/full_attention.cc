#include "engine/kv/full_attention.h"

#include <array>

#include "engine/base/check.h"

namespace tally {

void FullAttention::FindLongestHit(const HitQuery& query, std::span<AttentionGroup* const> joint,
                                   std::span<std::vector<BlockId>* const> hits) const {
  for (std::vector<BlockId>* blocks : hits) blocks->clear();
  const auto max_blocks =
      std::min(static_cast<std::size_t>(query.max_tokens / block_size()), query.hashes.size());
  std::array<BlockId, kMaxKvGroups> found;
  for (std::size_t i = 0; i < max_blocks && FindInAll(query.hashes[i], joint, found); ++i) {
    for (std::size_t group = 0; group < hits.size(); ++group) hits[group]->push_back(found[group]);
  }
  std::size_t length = hits[0]->size();
  if (query.drop_last_block && length > 0) --length;
  while (length * static_cast<std::size_t>(block_size()) %
             static_cast<std::size_t>(query.alignment) !=
         0)
    --length;
  for (std::vector<BlockId>* blocks : hits) blocks->resize(length);
}

std::int32_t FullAttention::CommonPrefixBlocks(RequestHandle request) {
  const bool still_holds = common_.request == request && common_.num_owners == num_owners() &&
                           common_.reference_epoch == pool_.reference_epoch();
  std::int32_t blocks = still_holds ? common_.blocks : 0;
  const std::span<const BlockId> table = Table(request);
  while (static_cast<std::size_t>(blocks) < table.size() &&
         pool_.reference_count(table[static_cast<std::size_t>(blocks)]) == num_owners()) {
    ++blocks;
  }
  common_ = {request, num_owners(), pool_.reference_epoch(), blocks};
  return blocks;
}

}  // namespace tally
