// Sliding window attention: a token reads the `window` newest ones, itself included. Older blocks
// are given back while the request runs, and a hit needs only the blocks that the next token reads
// (kv_cache.md GRP-20 to 25).
#ifndef TALLY_ENGINE_KV_SLIDING_WINDOW_H_
#define TALLY_ENGINE_KV_SLIDING_WINDOW_H_

#include "engine/kv/attention_group.h"

namespace tally {

class SlidingWindow final : public AttentionGroup {
 public:
  SlidingWindow(const KvGroupSpec& spec, std::uint32_t index, BlockPool& pool,
                BlockTableStore& tables, std::int32_t max_model_len,
                std::int32_t max_num_batched_tokens);

  std::int32_t SkippedTokens(std::int32_t computed) const override {
    return std::max(0, computed - spec_.window + 1);
  }
  std::int32_t BlockCap() const override { return block_cap_; }
  bool DropsLastBlock() const override { return true; }
  // Searches from the end for a run of blocks that covers the window. At most one probe a block and
  // group.
  void FindLongestHit(const HitQuery& query, std::span<AttentionGroup* const> joint,
                      std::span<std::vector<BlockId>* const> hits) const override;
  std::int32_t NextSkip(RequestHandle request) const override;

 private:
  std::int32_t block_cap_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_SLIDING_WINDOW_H_
