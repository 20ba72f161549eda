#include "engine/kv/block_pool.h"

#include "engine/base/check.h"

namespace tally {

BlockPool::BlockPool(std::uint32_t num_blocks, bool enable_prefix_caching)
    : blocks_(std::size_t{num_blocks} + 1),
      index_(enable_prefix_caching ? num_blocks : 1),
      num_blocks_(num_blocks),
      prefix_caching_(enable_prefix_caching) {
  TALLY_CHECK(num_blocks >= 1, "a pool has at least the null block");
  blocks_[num_blocks_] = {num_blocks_, num_blocks_, 0};
  for (std::uint32_t id = 1; id < num_blocks_; ++id) Append(id);
}

double BlockPool::usage() const {
  if (num_blocks_ == 1) return 0.0;
  return 1.0 - static_cast<double>(num_free_) / static_cast<double>(num_blocks_ - 1);
}

void BlockPool::Unlink(std::uint32_t id) {
  Block& block = blocks_[id];
  blocks_[block.previous].next = block.next;
  blocks_[block.next].previous = block.previous;
  --num_free_;
}

void BlockPool::Append(std::uint32_t id) {
  Block& sentinel = blocks_[num_blocks_];
  blocks_[id].previous = sentinel.previous;
  blocks_[id].next = num_blocks_;
  blocks_[sentinel.previous].next = id;
  sentinel.previous = id;
  ++num_free_;
}

void BlockPool::Allocate(std::span<BlockId> out) {
  TALLY_CHECK(out.size() <= num_free_, "%zu blocks wanted, %u free", out.size(), num_free_);
  std::uint32_t id = blocks_[num_blocks_].next;
  for (BlockId& taken : out) {
    taken = BlockId{id};
    Evict(taken);
    blocks_[id].references = 1;
    id = blocks_[id].next;
  }
  blocks_[num_blocks_].next = id;
  blocks_[id].previous = num_blocks_;
  num_free_ -= static_cast<std::uint32_t>(out.size());
}

void BlockPool::Touch(std::span<const BlockId> blocks) {
  for (BlockId block : blocks) {
    if (block == kNullBlock) continue;
    if (blocks_[Index(block)].references++ == 0) Unlink(Index(block));
  }
  ++reference_epoch_;
}

void BlockPool::FreeTailFirst(std::span<const BlockId> table) {
  for (std::size_t i = table.size(); i-- > 0;) {
    if (table[i] == kNullBlock) continue;
    Block& block = blocks_[Index(table[i])];
    TALLY_CHECK(block.references > 0, "block %u is free already", Index(table[i]));
    if (--block.references == 0) Append(Index(table[i]));
  }
  ++reference_epoch_;
}

bool BlockPool::Evict(BlockId block) {
  if (!prefix_caching_ || !index_.Remove(block)) return false;
  if (event_log_ != nullptr) event_log_->Removed(block);
  return true;
}

bool BlockPool::ResetPrefixCache() {
  if (num_free_ != num_blocks_ - 1) return false;
  index_.Clear();
  if (event_log_ != nullptr) event_log_->Cleared();
  return true;
}

std::vector<BlockId> BlockPool::FreeQueue() const {
  std::vector<BlockId> queue;
  queue.reserve(num_free_);
  for (std::uint32_t id = blocks_[num_blocks_].next; id != num_blocks_; id = blocks_[id].next) {
    queue.push_back(BlockId{id});
  }
  return queue;
}

void BlockPool::CheckInvariants() const {
  std::uint32_t length = 0;
  for (std::uint32_t id = blocks_[num_blocks_].next; id != num_blocks_; id = blocks_[id].next) {
    TALLY_CHECK(id != 0, "the null block is in the free queue");
    TALLY_CHECK(blocks_[id].references == 0, "block %u is free with %d references", id,
                blocks_[id].references);
    TALLY_CHECK(blocks_[blocks_[id].next].previous == id, "free queue broken behind block %u", id);
    ++length;
    TALLY_CHECK(length <= num_free_, "free queue longer than %u", num_free_);
  }
  TALLY_CHECK(length == num_free_, "free queue %u, counter %u", length, num_free_);
  std::uint32_t unreferenced = 0;
  for (std::uint32_t id = 1; id < num_blocks_; ++id) {
    TALLY_CHECK(blocks_[id].references >= 0, "block %u has %d references", id,
                blocks_[id].references);
    unreferenced += blocks_[id].references == 0 ? 1 : 0;
  }
  TALLY_CHECK(unreferenced == num_free_, "%u blocks without reference, %u free", unreferenced,
              num_free_);
  index_.CheckInvariants();
}

}  // namespace tally
