// Full attention: every token reads all before it, so nothing is ever given back and a hit is the
// longest run of cached blocks from the start (kv_cache.md GRP-10, GRP-11).
#ifndef TALLY_ENGINE_KV_FULL_ATTENTION_H_
#define TALLY_ENGINE_KV_FULL_ATTENTION_H_

#include "engine/kv/attention_group.h"

namespace tally {

class FullAttention final : public AttentionGroup {
 public:
  using AttentionGroup::AttentionGroup;

  std::int32_t SkippedTokens(std::int32_t) const override { return 0; }
  bool DropsLastBlock() const override { return true; }
  // One probe a hit block and group, and one for the block that misses.
  void FindLongestHit(const HitQuery& query, std::span<AttentionGroup* const> joint,
                      std::span<std::vector<BlockId>* const> hits) const override;
  // O(common blocks) when references changed since the last call, else O(blocks that are new).
  std::int32_t CommonPrefixBlocks(RequestHandle request) override;

 private:
  // The last answer of CommonPrefixBlocks and what it depended on.
  struct CommonPrefix {
    RequestHandle request = kNoRequest;
    std::int32_t num_owners = 0;
    std::uint64_t reference_epoch = 0;
    std::int32_t blocks = 0;
  };
  CommonPrefix common_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_FULL_ATTENTION_H_
