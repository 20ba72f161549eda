// The scheduler's view of the KV cache: what a prompt finds cached, whether a request fits, which
// blocks it holds.
//
// One pool of blocks serves all KV cache groups; each group keeps a block table for every request
// that holds blocks. The manager knows requests by handle only: token counts and hashes come with
// each call. All calls are deterministic; a look-up changes nothing, and a refused allocation
// changes nothing but to give back blocks that a window has passed (MGR-24).
#ifndef TALLY_ENGINE_KV_KV_CACHE_MANAGER_H_
#define TALLY_ENGINE_KV_KV_CACHE_MANAGER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/types.h"
#include "engine/kv/attention_group.h"
#include "engine/kv/block_hasher.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/kv_cache_config.h"
#include "engine/kv/prefix_search.h"

namespace tally {

enum class AllocationResult : std::uint8_t {
  kAllocated,
  kNoSpace,        // refused: the pool has fewer free blocks than the request needs
  kPoolExhausted,  // the pool ran out in the middle (kv_cache.md DEF-2, DEF-3): state is as far as
                   // it got
};

// How a request is to grow in one step. Counts are tokens.
struct AllocationRequest {
  std::int32_t computed = 0;   // computed before this step, hits not included
  std::int32_t known = 0;      // known token ids; placeholders and drafts are never registered
  std::int32_t scheduled = 0;  // to compute in this step, drafts included
  std::int32_t lookahead = 0;  // slots beyond them for a drafter
  // For a request that holds no blocks yet: what the prefix cache and a connector hold of it.
  const PrefixHit* hit = nullptr;
  std::int32_t external = 0;
  bool delay_registration = false;  // the external tokens arrive later
  std::int32_t encoder = 0;         // encoder tokens that a cross attention group has to hold
};

class KvCacheManager {
 public:
  // Checks a configuration: every message names the field and its value.
  static absl::Status Validate(const KvCacheConfig& config);
  // Wants a valid configuration.
  explicit KvCacheManager(const KvCacheConfig& config);

  KvCacheManager(const KvCacheManager&) = delete;
  KvCacheManager& operator=(const KvCacheManager&) = delete;

  std::uint32_t num_groups() const { return static_cast<std::uint32_t>(groups_.size()); }
  const AttentionGroup& group(std::uint32_t index) const { return *groups_[index]; }
  const BlockPool& pool() const { return pool_; }
  std::uint32_t num_free_blocks() const { return pool_.num_free(); }
  double usage() const { return pool_.usage(); }
  // The blocks of a request in one group, null blocks included. Valid until the next allocation.
  std::span<const BlockId> Table(RequestHandle request, std::uint32_t group) const {
    return groups_[group]->Table(request);
  }

  // From now on tells `log` what enters and leaves the prefix cache; it outlives the manager.
  void SetEventLog(KvEventLog* log) { pool_.SetEventLog(log); }
  // A new scheduling step begins; before any other call of the step.
  void BeginStep() {
    for (const auto& group : groups_) group->BeginStep();
  }

  // Makes room for the request handles 0 .. num_handles-1.
  void Reserve(std::size_t num_handles);

  // The longest cached prefix of at most `max_tokens` tokens. `hit` is overwritten; its memory is
  // reused. O(hit blocks).
  void FindLongestHit(std::span<const BlockHash> hashes, std::int32_t max_tokens, PrefixHit& hit);

  // Whether a waiting request of `known` tokens fits as a whole, given what it found (MGR-10), when
  // `reserved` blocks are wanted by others.
  bool FitsWholeSequence(RequestHandle request, std::int32_t known, std::int32_t computed,
                         const PrefixHit& hit, std::int32_t external, std::int32_t encoder = 0,
                         std::int64_t reserved = 0) const;

  // Blocks that a request which holds some lacks for `tokens` tokens.
  std::int64_t BlocksMissing(RequestHandle request, std::int32_t tokens) const;

  // Whether one sequence of `tokens` tokens alone would fit in an empty pool.
  bool FitsEmptyPool(std::int32_t tokens) const;

  // True when Allocate would find everything in place: the usual case of a running request between
  // two block boundaries. `slots` tokens to hold, `registrable` known ones, `computed` ones before
  // this step.
  bool HoldsAlready(RequestHandle request, std::int32_t slots, std::int32_t registrable,
                    std::int32_t computed) const {
    const Limits& limits = limits_[Index(request)];
    return slots <= limits.slots && registrable < limits.registration && computed < limits.skip;
  }

  // Makes room for a step (MGR-20 to 29). On success `first_new_block[g]` is the place in the table
  // of group g from which on its blocks are new.
  AllocationResult Allocate(RequestHandle request, const AllocationRequest& args,
                            std::span<const BlockHash> hashes,
                            std::span<std::uint32_t> first_new_block);

  // Registers the blocks that `tokens` tokens fill, when prefix caching is on (MGR-34).
  void Register(RequestHandle request, std::int32_t tokens, std::span<const BlockHash> hashes);

  // Gives the blocks back that no token behind the first `computed` ones reads (MGR-40).
  void RemoveSkipped(RequestHandle request, std::int32_t computed) {
    for (const auto& group : groups_) group->RemoveSkipped(request, computed);
    UpdateLimits(request);
  }

  // Gives all blocks of a request back (MGR-35). A request without blocks is fine.
  void Free(RequestHandle request);

  // Blocks that groups of full attention got since the last call, group by group, when the model
  // has Mamba layers: these share their memory with Mamba states, whose leftovers would be read as
  // keys and values (MGR-51). Empty for other models.
  void TakeBlocksToZero(std::vector<BlockId>& blocks) {
    blocks.clear();
    for (const auto& group : groups_) group->TakeFreshBlocks(blocks);
  }

  // For each group the leading blocks that all owners share with this request (MGR-50).
  void CommonPrefixBlocks(RequestHandle request, std::span<std::int32_t> blocks);

  // Takes the content of blocks away, in the order given (MGR-52). Ids below num_blocks.
  void Evict(std::span<const BlockId> blocks) {
    for (BlockId block : blocks) pool_.Evict(block);
  }

  // Empties the prefix cache; false, and no change, while a block is in use (POOL-20).
  bool ResetPrefixCache() { return pool_.ResetPrefixCache(); }

  // After kPoolExhausted: why.
  const GrowthFault& growth_fault() const { return growth_fault_; }

  // For tests: aborts unless pool and tables agree; `handles` are all that may hold blocks.
  // O(blocks).
  void CheckInvariants(std::span<const RequestHandle> handles) const;

 private:
  // Up to which counts HoldsAlready holds, over all groups; see AttentionGroup::SlotCapacity and
  // its neighbours.
  struct Limits {
    std::int32_t slots = 0;
    std::int32_t registration = 0;
    std::int32_t skip = 0;
  };

  static std::span<const BlockId> HitBlocks(const PrefixHit* hit, std::uint32_t group) {
    if (hit == nullptr || hit->blocks.empty()) return {};
    return hit->blocks[group];
  }
  void UpdateLimits(RequestHandle request);
  AllocationResult Exhausted(const AttentionGroup& group);

  KvCacheConfig config_;
  BlockPool pool_;
  BlockTableStore tables_;
  std::vector<std::unique_ptr<AttentionGroup>> groups_;
  PrefixSearch search_;
  std::vector<Limits> limits_;
  GrowthFault growth_fault_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_KV_CACHE_MANAGER_H_
