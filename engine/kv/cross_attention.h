// Cross attention of encoder-decoder models: the blocks hold the encoder's tokens, all of which are
// there from the step on that runs the encoder. Never cached (kv_cache.md GRP-50).
#ifndef TALLY_ENGINE_KV_CROSS_ATTENTION_H_
#define TALLY_ENGINE_KV_CROSS_ATTENTION_H_

#include "engine/kv/attention_group.h"

namespace tally {

class CrossAttention final : public AttentionGroup {
 public:
  using AttentionGroup::AttentionGroup;

  std::int32_t SkippedTokens(std::int32_t) const override { return 0; }
  // What the encoder takes is known when its input is scheduled only.
  std::int32_t BlocksForAlone(std::int32_t) const override { return 0; }
  void FindLongestHit(const HitQuery&, std::span<AttentionGroup* const>,
                      std::span<std::vector<BlockId>* const> hits) const override {
    for (std::vector<BlockId>* blocks : hits) blocks->clear();
  }

  std::int32_t BlocksNeeded(RequestHandle request, const BlockDemand& demand,
                            std::span<const BlockId>, std::int32_t most_blocks) const override {
    return AttentionGroup::BlocksNeeded(request, {.slots = demand.encoder, .main = demand.encoder},
                                        {}, most_blocks);
  }
  bool GrowToExternal(RequestHandle, std::int32_t) override { return true; }
  bool Grow(RequestHandle request, const BlockDemand& demand, std::uint32_t& first_new) override {
    return AttentionGroup::Grow(request, {.slots = demand.encoder, .main = demand.encoder},
                                first_new);
  }
  void Register(RequestHandle, std::int32_t, std::span<const BlockHash>) override {}
  std::int32_t SlotCapacity(RequestHandle) const override { return kNoCap; }
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_CROSS_ATTENTION_H_
