// The block tables of all requests, in one flat array.
//
// A table is a run of the array whose capacity is a power of two; one that outgrows its run moves
// to a larger one, and runs that are given back are reused, so that in a steady state nothing is
// allocated. Positions are offsets: they stay valid when the array grows, views do not.
#ifndef TALLY_ENGINE_KV_BLOCK_TABLE_STORE_H_
#define TALLY_ENGINE_KV_BLOCK_TABLE_STORE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/types.h"

namespace tally {

// One request's table in one KV cache group. A default-constructed table is empty and owns no run.
struct BlockTable {
  std::uint32_t offset = 0;
  std::uint32_t length = 0;  // blocks, null blocks included
  std::uint32_t capacity = 0;
};

class BlockTableStore {
 public:
  std::span<BlockId> View(const BlockTable& table) {
    return {storage_.data() + table.offset, table.length};
  }
  std::span<const BlockId> View(const BlockTable& table) const {
    return {storage_.data() + table.offset, table.length};
  }

  // Lengthens the table by `count` entries and returns them, to be filled. Amortised O(count);
  // invalidates views.
  std::span<BlockId> Extend(BlockTable& table, std::uint32_t count);

  // Empties the table and gives its run back. O(1).
  void Release(BlockTable& table);

 private:
  static constexpr std::uint32_t kSmallestRun = 8;

  std::uint32_t TakeRun(std::uint32_t capacity);

  std::vector<BlockId> storage_;
  std::array<std::vector<std::uint32_t>, 32> free_runs_;  // by log2 of the capacity
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_BLOCK_TABLE_STORE_H_
