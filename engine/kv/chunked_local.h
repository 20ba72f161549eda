// Chunked local attention: a token reads its own chunk of the sequence only. Blocks of past chunks
// are given back, and a hit needs none of them (kv_cache.md GRP-30 to 33).
#ifndef TALLY_ENGINE_KV_CHUNKED_LOCAL_H_
#define TALLY_ENGINE_KV_CHUNKED_LOCAL_H_

#include "engine/kv/attention_group.h"

namespace tally {

class ChunkedLocal final : public AttentionGroup {
 public:
  ChunkedLocal(const KvGroupSpec& spec, std::uint32_t index, BlockPool& pool,
               BlockTableStore& tables, std::int32_t max_model_len,
               std::int32_t max_num_batched_tokens);

  std::int32_t SkippedTokens(std::int32_t computed) const override {
    return computed / spec_.chunk * spec_.chunk;
  }
  std::int32_t BlockCap() const override { return block_cap_; }
  // Past chunks count as found without a look-up, then one probe a block of the present one.
  void FindLongestHit(const HitQuery& query, std::span<AttentionGroup* const> joint,
                      std::span<std::vector<BlockId>* const> hits) const override;
  std::int32_t NextSkip(RequestHandle request) const override;

 private:
  std::int32_t block_cap_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_CHUNKED_LOCAL_H_
