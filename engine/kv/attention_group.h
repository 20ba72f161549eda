// One KV cache group: the layers that share block tables, and the rules of their kind of attention.
//
// The base class holds what all kinds share (kv_cache.md MGR-30 to 40): how many blocks a request
// needs, how it adopts a cached prefix, how its table grows, which blocks enter the prefix cache,
// how it is freed. A kind of attention says which tokens it never reads again and how its longest
// cached prefix is found.
#ifndef TALLY_ENGINE_KV_ATTENTION_GROUP_H_
#define TALLY_ENGINE_KV_ATTENTION_GROUP_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/types.h"
#include "engine/kv/block_hash.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/block_table_store.h"
#include "engine/kv/kv_cache_config.h"

namespace tally {

// What a search for a cached prefix may use.
struct HitQuery {
  std::span<const BlockHash> hashes;  // of the request's full blocks, at the groups' block size
  std::int32_t max_tokens = 0;        // longest admissible hit
  std::int32_t alignment = 0;         // a hit is a multiple of so many tokens
  bool drop_last_block =
      false;  // EAGLE's rule: the drafter needs the last matched block computed again
};

// How many tokens a request wants room for.
struct BlockDemand {
  std::int32_t slots = 0;     // tokens to hold, look-ahead included
  std::int32_t main = 0;      // of these, tokens that the model itself computes
  std::int32_t computed = 0;  // tokens computed before, hits and external ones included
  std::int32_t encoder = 0;   // encoder tokens for cross attention
};

// Why a table could not grow although the test for free blocks had passed, which only faults of the
// reference engine make possible. Either blocks were missing, or the table was too long.
struct GrowthFault {
  std::int32_t missing_blocks = 0;   // that the pool could not give; 0: the table was too long
  std::uint32_t wanted_length = 0;   // entries that the step asks for, and
  std::uint32_t present_length = 0;  // those that the table has
};

class AttentionGroup {
 public:
  static constexpr std::int32_t kNotCounted = -1;
  static constexpr std::int32_t kNoCap = std::numeric_limits<std::int32_t>::max();

  AttentionGroup(const KvGroupSpec& spec, std::uint32_t index, BlockPool& pool,
                 BlockTableStore& tables)
      : spec_(spec), index_(index), pool_(pool), tables_(tables) {}
  virtual ~AttentionGroup() = default;
  AttentionGroup(const AttentionGroup&) = delete;
  AttentionGroup& operator=(const AttentionGroup&) = delete;

  static std::unique_ptr<AttentionGroup> Create(const KvCacheConfig& config, std::uint32_t index,
                                                BlockPool& pool, BlockTableStore& tables);

  const KvGroupSpec& spec() const { return spec_; }
  std::uint32_t index() const { return index_; }
  std::int32_t block_size() const { return spec_.block_size; }
  std::span<const BlockId> Table(RequestHandle request) const {
    return tables_.View(At(request).table);
  }
  // Leading blocks known to be cached; kNotCounted before the first adoption or registration
  // (MGR-33).
  std::int32_t num_cached_blocks(RequestHandle request) const {
    return At(request).num_cached_blocks;
  }
  // About the last growth that failed.
  const GrowthFault& growth_fault() const { return growth_fault_; }
  // From now on fresh blocks are noted for TakeFreshBlocks.
  void NoteFreshBlocks() { notes_fresh_blocks_ = true; }
  // Appends the noted blocks that were allocated since the last call, in order.
  void TakeFreshBlocks(std::vector<BlockId>& blocks) {
    blocks.insert(blocks.end(), fresh_blocks_.begin(), fresh_blocks_.end());
    fresh_blocks_.clear();
  }
  // Requests that own blocks in this group.
  std::int32_t num_owners() const { return num_owners_; }

  // Makes room for a handle; existing state stays.
  virtual void Reserve(std::size_t num_handles) {
    states_.resize(std::max(num_handles, states_.size()));
  }

  // Tokens at the front of a sequence with `computed` tokens that no later token reads (0 for full
  // attention).
  virtual std::int32_t SkippedTokens(std::int32_t computed) const = 0;
  // Bound on the blocks that one request is thought to need, GRP-23.
  virtual std::int32_t BlockCap() const { return kNoCap; }
  // Blocks that a sequence of `tokens` tokens holds at most while it runs alone.
  virtual std::int32_t BlocksForAlone(std::int32_t tokens) const {
    return std::min(CeilDiv(tokens, block_size()), BlockCap());
  }
  // Whether a hit of this kind honours HitQuery::drop_last_block.
  virtual bool DropsLastBlock() const { return false; }
  // Finds the longest hit that all groups of `joint` (equal specs, this one among them) hold;
  // writes the blocks of each into `hits[i]`, null blocks where the kind needs none. All lists have
  // the same length.
  virtual void FindLongestHit(const HitQuery& query, std::span<AttentionGroup* const> joint,
                              std::span<std::vector<BlockId>* const> hits) const = 0;
  // Leading blocks of the request that every owner of blocks in this group shares (MGR-50).
  virtual std::int32_t CommonPrefixBlocks(RequestHandle) { return 0; }
  // A new scheduling step begins.
  virtual void BeginStep() {}

  // Free blocks that the request would use up, cached blocks that it would revive included
  // (MGR-32), when its table is thought to have `most_blocks` at most. `hits` is empty for a
  // request that holds blocks already. O(hits).
  virtual std::int32_t BlocksNeeded(RequestHandle request, const BlockDemand& demand,
                                    std::span<const BlockId> hits, std::int32_t most_blocks) const;

  // Starts a request's table with its hits (MGR-30); `total` tokens will be computed, external ones
  // included. Nothing happens for a request that holds blocks.
  void AdoptHits(RequestHandle request, std::span<const BlockId> hits, std::int32_t total);
  // Makes room for `tokens` computed tokens, hits included, when a connector brings some of them.
  // False when the pool ran out, which only the cap of GRP-23 makes possible (DEF-2).
  virtual bool GrowToExternal(RequestHandle request, std::int32_t tokens) {
    return GrowTo(request, tokens);
  }
  // Lengthens the table (MGR-31); `first_new` is the place of the first entry that the worker does
  // not know. False as above.
  virtual bool Grow(RequestHandle request, const BlockDemand& demand, std::uint32_t& first_new);

  // Registers the blocks that `tokens` tokens fill (MGR-34). `hashes` are at this group's block
  // size.
  virtual void Register(RequestHandle request, std::int32_t tokens,
                        std::span<const BlockHash> hashes);

  // Gives back the blocks that no later token reads, null blocks in their place (MGR-40).
  virtual void RemoveSkipped(RequestHandle request, std::int32_t total_computed);

  virtual void Free(RequestHandle request);

  // Up to which counts nothing happens for this request: tokens that its table holds, tokens at
  // which its next block becomes full, computed tokens at which it gives the next block back.
  virtual std::int32_t SlotCapacity(RequestHandle request) const;
  std::int32_t NextRegistration(RequestHandle request) const;
  virtual std::int32_t NextSkip(RequestHandle) const {
    return std::numeric_limits<std::int32_t>::max();
  }

 protected:
  struct State {
    BlockTable table;
    std::int32_t num_cached_blocks = kNotCounted;
  };

  const State& At(RequestHandle request) const { return states_[Index(request)]; }
  State& At(RequestHandle request) { return states_[Index(request)]; }
  // The block that this group caches under `hash`.
  std::optional<BlockId> FindCached(const BlockHash& hash) const {
    return pool_.FindCached(GroupKey(hash, index_));
  }
  // Whether each group of `joint` caches `hash`; writes their blocks into `found`.
  static bool FindInAll(const BlockHash& hash, std::span<AttentionGroup* const> joint,
                        std::span<BlockId> found);
  bool GrowTo(RequestHandle request, std::int32_t tokens);
  // Of `hits` from `first` on, those that nobody uses: reviving them takes free blocks.
  std::int32_t Revived(std::span<const BlockId> hits, std::size_t first) const;
  // Extends the table by freshly allocated blocks, or answers false when there are not enough.
  bool AppendFresh(State& state, std::int32_t count);
  void AppendBlock(State& state, BlockId block);
  void AppendNulls(State& state, std::uint32_t count);
  // Null blocks at the start of the table. O(log blocks).
  std::int32_t LeadingNulls(RequestHandle request) const;
  std::span<BlockId> Mutable(State& state) { return tables_.View(state.table); }

  GrowthFault growth_fault_;
  const KvGroupSpec spec_;
  const std::uint32_t index_;
  BlockPool& pool_;

 private:
  BlockTableStore& tables_;
  std::vector<State> states_;
  std::int32_t num_owners_ = 0;
  bool notes_fresh_blocks_ = false;
  std::vector<BlockId> fresh_blocks_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_ATTENTION_GROUP_H_
