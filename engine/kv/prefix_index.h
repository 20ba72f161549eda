// The prefix cache's index: from a block's key to the blocks that hold this content.
//
// A key may have several blocks (a block that becomes full is never merged with an older one of the
// same content). They form a ring in order of insertion; a look-up answers the oldest (kv_cache.md
// POOL-16).
//
// Layout: an open-addressing table of 8-byte slots, linear probing, removal by backward shift, so
// that it holds no tombstones and never grows. A slot keeps 32 bits of the key, from which its home
// is derived: neither probing past foreign entries nor shifting touches the blocks' own entries.
// Everything is allocated at construction.
#ifndef TALLY_ENGINE_KV_PREFIX_INDEX_H_
#define TALLY_ENGINE_KV_PREFIX_INDEX_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/types.h"
#include "engine/kv/block_hash.h"

namespace tally {

class PrefixIndex {
 public:
  // For blocks 0 .. num_blocks-1. Memory: 24 bytes a block and at most 24 more for the slots.
  explicit PrefixIndex(std::uint32_t num_blocks);

  // The oldest block inserted under `key`, or nothing. Expected O(1), one cache miss for the slot
  // and one for the key. No side effect.
  std::optional<BlockId> Find(const BlockHash& key) const;

  // Puts `block`, which must not be in the index, behind the other blocks of `key`. Expected O(1).
  void Insert(const BlockHash& key, BlockId block);

  // Takes `block` out; the order of the others of its key stays. False when it was not in. Expected
  // O(1).
  bool Remove(BlockId block);

  bool Contains(BlockId block) const { return entries_[Index(block)].next != kNotIndexed; }
  // The key of a block that is in the index.
  const BlockHash& KeyOf(BlockId block) const { return entries_[Index(block)].key; }

  // Number of blocks in the index.
  std::uint32_t size() const { return size_; }

  // Forgets everything. O(num_blocks).
  void Clear();

  // For tests: aborts unless every slot, ring and count agrees. O(num_blocks).
  void CheckInvariants() const;

 private:
  static constexpr std::uint32_t kNotIndexed = 0xFFFFFFFFU;

  // Per block; `next` and `previous` close the ring of blocks with the same key, head first, so
  // that head.previous is the newest.
  struct Entry {
    BlockHash key;
    std::uint32_t next = kNotIndexed;
    std::uint32_t previous = kNotIndexed;
  };
  struct Slot {
    std::uint32_t fingerprint = 0;
    std::uint32_t head = 0;  // oldest block of the key; 0, the null block, marks an empty slot
  };

  static std::uint32_t Fingerprint(const BlockHash& key);
  // The slot of `key`, or the empty slot where it would go.
  std::uint32_t FindSlot(const BlockHash& key) const;
  void EraseSlot(std::uint32_t slot);

  std::vector<Entry> entries_;
  std::vector<Slot> slots_;
  std::uint32_t mask_;
  std::uint32_t size_ = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_PREFIX_INDEX_H_
