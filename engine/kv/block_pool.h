// All KV cache blocks of the engine: who is free, how often a block is used, what it caches.
//
// Invariant: a block other than the null block is in the free queue exactly while its reference
// count is zero. The free queue is in order of eviction: allocation takes from the head, freed
// blocks go to the tail. A free block keeps its cached content, and can be revived by a hit, until
// it is handed out again (kv_cache.md section 1).
//
// The queue is a doubly linked list inside the block array. Nothing is allocated after
// construction. A block costs at most 64 bytes, its share of the prefix index included.
#ifndef TALLY_ENGINE_KV_BLOCK_POOL_H_
#define TALLY_ENGINE_KV_BLOCK_POOL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/types.h"
#include "engine/kv/block_hash.h"
#include "engine/kv/kv_events.h"
#include "engine/kv/prefix_index.h"

namespace tally {

class BlockPool {
 public:
  // `num_blocks` >= 1 includes the null block (POOL-1, POOL-2).
  BlockPool(std::uint32_t num_blocks, bool enable_prefix_caching);

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  std::uint32_t num_blocks() const { return num_blocks_; }
  std::uint32_t num_free() const { return num_free_; }
  bool prefix_caching() const { return prefix_caching_; }
  // Share of usable blocks that are referenced, 0 to 1; cached free blocks count as free (POOL-21).
  double usage() const;

  // Takes the first out.size() blocks of the free queue, in order, drops what they cached and gives
  // each one reference (POOL-8). The caller makes sure that there are enough. O(out.size()).
  void Allocate(std::span<BlockId> out);

  // Adds a reference to each block, reviving those in the free queue (POOL-11). Null blocks are
  // skipped. O(blocks).
  void Touch(std::span<const BlockId> blocks);

  // Drops one reference of each block of a table, from its tail to its head, and appends those that
  // nobody uses to the free queue in that order, so that a sequence's head is evicted last (MGR-35,
  // MGR-36). Null blocks are skipped. A block may occur once. O(blocks).
  void FreeTailFirst(std::span<const BlockId> table);

  // The prefix cache. Look-ups have no side effect; Register wants a block without content
  // (POOL-18).
  std::optional<BlockId> FindCached(const BlockHash& key) const { return index_.Find(key); }
  void Register(const BlockHash& key, BlockId block) { index_.Insert(key, block); }
  bool IsCached(BlockId block) const { return prefix_caching_ && index_.Contains(block); }
  const BlockHash& KeyOf(BlockId block) const { return index_.KeyOf(block); }
  // Forgets what the block caches; references and queue stay as they are (POOL-19). False when it
  // cached nothing.
  bool Evict(BlockId block);
  // Forgets everything cached, unless a block is in use: then nothing changes and the answer is
  // false. The order of the free queue stays (POOL-20). O(num_blocks).
  bool ResetPrefixCache();
  // From now on tells `log`, which outlives the pool, what leaves the cache.
  void SetEventLog(KvEventLog* log) { event_log_ = log; }
  KvEventLog* event_log() const { return event_log_; }
  std::uint32_t num_cached() const { return index_.size(); }

  std::int32_t reference_count(BlockId block) const { return blocks_[Index(block)].references; }

  // Grows whenever an existing block gains or loses a reference (not when a fresh one is handed
  // out): lets a caller keep a result that depends on reference counts.
  std::uint64_t reference_epoch() const { return reference_epoch_; }

  // For tests: the free queue from head to tail. O(free blocks).
  std::vector<BlockId> FreeQueue() const;
  // For tests: aborts unless queue, counts and index agree (kv_cache.md INV-1, 2, 4, 5).
  // O(num_blocks).
  void CheckInvariants() const;

 private:
  struct Block {
    std::uint32_t previous = 0;
    std::uint32_t next = 0;
    std::int32_t references = 0;
  };

  void Unlink(std::uint32_t id);
  void Append(std::uint32_t id);

  // blocks_[num_blocks_] is the sentinel that closes the free queue to a ring: its next is the
  // head.
  std::vector<Block> blocks_;
  PrefixIndex index_;
  KvEventLog* event_log_ = nullptr;
  std::uint32_t num_blocks_;
  std::uint32_t num_free_ = 0;
  std::uint64_t reference_epoch_ = 0;
  bool prefix_caching_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_BLOCK_POOL_H_
