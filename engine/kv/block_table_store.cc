#include "engine/kv/block_table_store.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "engine/base/check.h"

namespace tally {

std::uint32_t BlockTableStore::TakeRun(std::uint32_t capacity) {
  std::vector<std::uint32_t>& runs =
      free_runs_[static_cast<std::size_t>(std::countr_zero(capacity))];
  if (!runs.empty()) {
    const std::uint32_t offset = runs.back();
    runs.pop_back();
    return offset;
  }
  const std::size_t offset = storage_.size();
  TALLY_CHECK(offset + capacity <= std::numeric_limits<std::uint32_t>::max(),
              "block tables hold %zu entries", offset);
  storage_.resize(offset + capacity);
  return static_cast<std::uint32_t>(offset);
}

std::span<BlockId> BlockTableStore::Extend(BlockTable& table, std::uint32_t count) {
  const std::uint32_t length = table.length + count;
  if (length > table.capacity) {
    const std::uint32_t capacity = std::max(kSmallestRun, std::bit_ceil(length));
    const std::uint32_t offset = TakeRun(capacity);
    std::copy_n(storage_.begin() + table.offset, table.length, storage_.begin() + offset);
    const std::uint32_t old_length = table.length;
    Release(table);
    table = {offset, old_length, capacity};
  }
  std::span<BlockId> added{storage_.data() + table.offset + table.length, count};
  table.length = length;
  return added;
}

void BlockTableStore::Release(BlockTable& table) {
  if (table.capacity > 0) {
    free_runs_[static_cast<std::size_t>(std::countr_zero(table.capacity))].push_back(table.offset);
  }
  table = BlockTable{};
}

}  // namespace tally
