#include "engine/kv/prefix_index.h"

#include <bit>

#include "engine/base/check.h"

namespace tally {

PrefixIndex::PrefixIndex(std::uint32_t num_blocks)
    : entries_(num_blocks),
      // At most two slots in three are taken, which keeps probes short.
      slots_(std::bit_ceil(num_blocks + num_blocks / 2 + 2)),
      mask_(static_cast<std::uint32_t>(slots_.size()) - 1) {}

std::uint32_t PrefixIndex::Fingerprint(const BlockHash& key) {
  // Keys are hashes already, but a caller may hand in small numbers (tests, fuzzers): mix once.
  std::uint64_t mixed = (key.low ^ std::rotl(key.high, 32)) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::uint32_t>(mixed >> 32);
}

std::uint32_t PrefixIndex::FindSlot(const BlockHash& key) const {
  const std::uint32_t fingerprint = Fingerprint(key);
  std::uint32_t slot = fingerprint & mask_;
  while (slots_[slot].head != 0) {
    if (slots_[slot].fingerprint == fingerprint && entries_[slots_[slot].head].key == key) break;
    slot = (slot + 1) & mask_;
  }
  return slot;
}

std::optional<BlockId> PrefixIndex::Find(const BlockHash& key) const {
  const std::uint32_t head = slots_[FindSlot(key)].head;
  if (head == 0) return std::nullopt;
  return BlockId{head};
}

void PrefixIndex::Insert(const BlockHash& key, BlockId block) {
  const std::uint32_t id = Index(block);
  TALLY_CHECK(id != 0 && id < entries_.size(), "block %u of %zu", id, entries_.size());
  TALLY_CHECK(!Contains(block), "block %u is indexed already", id);
  Entry& entry = entries_[id];
  Slot& slot = slots_[FindSlot(key)];
  entry.key = key;
  if (slot.head == 0) {
    slot = {Fingerprint(key), id};
    entry.next = entry.previous = id;
  } else {
    Entry& head = entries_[slot.head];
    entry.next = slot.head;
    entry.previous = head.previous;
    entries_[head.previous].next = id;
    head.previous = id;
  }
  ++size_;
}

bool PrefixIndex::Remove(BlockId block) {
  const std::uint32_t id = Index(block);
  Entry& entry = entries_[id];
  if (entry.next == kNotIndexed) return false;
  const std::uint32_t next = entry.next;
  entries_[entry.previous].next = next;
  entries_[next].previous = entry.previous;
  // Only the head is known to the table; a younger block leaves it untouched.
  const std::uint32_t slot = FindSlot(entry.key);
  entry.next = entry.previous = kNotIndexed;
  if (slots_[slot].head == id) {
    if (next == id) {
      EraseSlot(slot);
    } else {
      slots_[slot].head = next;
    }
  }
  --size_;
  return true;
}

void PrefixIndex::EraseSlot(std::uint32_t hole) {
  std::uint32_t slot = hole;
  while (true) {
    slot = (slot + 1) & mask_;
    if (slots_[slot].head == 0) break;
    // An entry may fill the hole unless that would put it before its home.
    const std::uint32_t home = slots_[slot].fingerprint & mask_;
    if (((slot - home) & mask_) >= ((slot - hole) & mask_)) {
      slots_[hole] = slots_[slot];
      hole = slot;
    }
  }
  slots_[hole] = Slot{};
}

void PrefixIndex::Clear() {
  for (Entry& entry : entries_) entry.next = entry.previous = kNotIndexed;
  for (Slot& slot : slots_) slot = Slot{};
  size_ = 0;
}

void PrefixIndex::CheckInvariants() const {
  std::uint32_t in_rings = 0;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.head == 0) continue;
    const BlockHash& key = entries_[slot.head].key;
    TALLY_CHECK(FindSlot(key) == i, "slot %u cannot be reached from its home", i);
    std::uint32_t id = slot.head;
    do {
      const Entry& entry = entries_[id];
      TALLY_CHECK(entry.next != kNotIndexed, "block %u in a ring but not indexed", id);
      TALLY_CHECK(entry.key == key, "block %u in the ring of another key", id);
      TALLY_CHECK(entries_[entry.next].previous == id, "ring broken behind block %u", id);
      ++in_rings;
      TALLY_CHECK(in_rings <= size_, "more blocks in rings than %u", size_);
      id = entry.next;
    } while (id != slot.head);
  }
  std::uint32_t indexed = 0;
  for (const Entry& entry : entries_) indexed += entry.next != kNotIndexed ? 1 : 0;
  TALLY_CHECK(in_rings == size_ && indexed == size_, "rings %u, entries %u, size %u", in_rings,
              indexed, size_);
}

}  // namespace tally
