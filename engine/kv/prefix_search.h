// Finds the longest cached prefix that every KV cache group can serve (kv_cache.md GRP-5, GRP-70 to
// 76).
#ifndef TALLY_ENGINE_KV_PREFIX_SEARCH_H_
#define TALLY_ENGINE_KV_PREFIX_SEARCH_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/types.h"
#include "engine/kv/attention_group.h"
#include "engine/kv/block_hash.h"

namespace tally {

// A hit: its length and, for each group, the blocks that hold it (null blocks where the group needs
// none). Every group's blocks cover the length, except under
// KvCacheConfig::eagle_lengthens_mamba_hits.
struct PrefixHit {
  std::int32_t num_tokens = 0;
  std::vector<std::vector<BlockId>> blocks;

  void Clear() {
    num_tokens = 0;
    for (std::vector<BlockId>& group : blocks) group.clear();
  }
};

class PrefixSearch {
 public:
  // The groups are those of `config` and outlive the search.
  PrefixSearch(std::span<const std::unique_ptr<AttentionGroup>> groups,
               const KvCacheConfig& config);

  // Finds the longest hit of at most `max_tokens` tokens; `hit.blocks` has one list a group.
  void Find(std::span<const BlockHash> hashes, std::int32_t max_tokens, PrefixHit& hit);

  // The hashes as a group of larger blocks sees them (HASH-10): one for each run of hashes that
  // fills a block.
  std::span<const BlockHash> HashesAt(std::int32_t block_size, std::span<const BlockHash> hashes);

 private:
  // Groups with equal specs, searched together.
  struct AttentionSet {
    std::vector<AttentionGroup*> groups;
    bool full = false;
    bool drops_last = false;  // is searched one block further for EAGLE, to drop that block
    bool searched = false;
    bool dropped_last = false;  // the drop was made for the present candidate length
  };

  // Searches `set` for a hit of at most `max_tokens`; answers its blocks.
  std::int32_t SearchSet(AttentionSet& set, std::int32_t max_tokens, bool drop_last,
                         PrefixHit& hit);

  std::vector<AttentionSet> sets_;  // full attention first
  std::int32_t hash_block_size_;
  std::int32_t alignment_ = 1;
  std::vector<BlockHash> joined_;
  std::span<const BlockHash> hashes_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_PREFIX_SEARCH_H_
