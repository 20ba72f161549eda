#include "engine/kv/sliding_window.h"

#include <array>

#include "engine/base/check.h"

namespace tally {

SlidingWindow::SlidingWindow(const KvGroupSpec& spec, std::uint32_t index, BlockPool& pool,
                             BlockTableStore& tables, std::int32_t max_model_len,
                             std::int32_t max_num_batched_tokens)
    : AttentionGroup(spec, index, pool, tables) {
  // What is alive in the window while a step computes max_num_batched_tokens more; one block more
  // because a window need not begin at a block's edge.
  const std::int64_t live_tokens =
      std::min<std::int64_t>(std::int64_t{spec.window} - 1 + max_num_batched_tokens, max_model_len);
  block_cap_ = CeilDiv(static_cast<std::int32_t>(live_tokens), spec.block_size) + 1;
}

void SlidingWindow::FindLongestHit(const HitQuery& query, std::span<AttentionGroup* const> joint,
                                   std::span<std::vector<BlockId>* const> hits) const {
  const std::int32_t size = block_size();
  // The run of cached blocks that the next token's window needs; EAGLE drops one of them
  // afterwards.
  const std::int32_t wanted =
      std::max(CeilDiv(spec_.window - 1, size) + (query.drop_last_block ? 1 : 0), 1);
  const auto max_blocks = static_cast<std::int32_t>(
      std::min(static_cast<std::size_t>(query.max_tokens / size), query.hashes.size()));
  for (std::vector<BlockId>* blocks : hits)
    blocks->assign(static_cast<std::size_t>(max_blocks), kNullBlock);

  const auto aligned = [&](std::int32_t blocks) {
    return std::int64_t{blocks} * size % query.alignment == 0;
  };
  std::array<BlockId, kMaxKvGroups> found;
  std::int32_t run = 0;
  std::int32_t length = kNotCounted;
  for (std::int32_t i = max_blocks - 1; i >= 0; --i) {
    if (!FindInAll(query.hashes[static_cast<std::size_t>(i)], joint, found)) {
      run = 0;
      continue;
    }
    // A run may only end where the whole hit would be aligned.
    if (run == 0 && !aligned(query.drop_last_block ? i : i + 1)) continue;
    for (std::size_t group = 0; group < hits.size(); ++group) {
      (*hits[group])[static_cast<std::size_t>(i)] = found[group];
    }
    if (++run >= wanted) {
      length = i + run;
      break;
    }
  }
  if (length == kNotCounted) {  // a short run is a hit when it starts at the first block
    length = run;
    while (!aligned(length)) --length;
  }
  if (query.drop_last_block && length > 0) {
    --length;
    while (!aligned(length)) --length;
  }
  for (std::vector<BlockId>* blocks : hits) blocks->resize(static_cast<std::size_t>(length));
}

std::int32_t SlidingWindow::NextSkip(RequestHandle request) const {
  const std::int64_t nulls = LeadingNulls(request);
  const std::int64_t computed = (nulls + 1) * block_size() + spec_.window - 1;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(computed, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace tally
