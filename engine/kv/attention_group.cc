#include "engine/kv/attention_group.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/kv/chunked_local.h"
#include "engine/kv/cross_attention.h"
#include "engine/kv/full_attention.h"
#include "engine/kv/mamba.h"
#include "engine/kv/sliding_window.h"

namespace tally {

std::unique_ptr<AttentionGroup> AttentionGroup::Create(const KvCacheConfig& config,
                                                       std::uint32_t index, BlockPool& pool,
                                                       BlockTableStore& tables) {
  const KvGroupSpec& spec = config.groups[index];
  switch (spec.kind) {
    case AttentionKind::kFull:
      return std::make_unique<FullAttention>(spec, index, pool, tables);
    case AttentionKind::kSlidingWindow:
      return std::make_unique<SlidingWindow>(spec, index, pool, tables, config.max_model_len,
                                             config.max_num_batched_tokens);
    case AttentionKind::kChunkedLocal:
      return std::make_unique<ChunkedLocal>(spec, index, pool, tables, config.max_model_len,
                                            config.max_num_batched_tokens);
    case AttentionKind::kMamba:
      return std::make_unique<Mamba>(spec, index, pool, tables, config.enable_prefix_caching,
                                     config.mamba_needs_go_below_zero);
    case AttentionKind::kCross:
      return std::make_unique<CrossAttention>(spec, index, pool, tables);
  }
  TALLY_CHECK(false, "unknown kind of attention %d", static_cast<int>(spec.kind));
  return nullptr;
}

bool AttentionGroup::FindInAll(const BlockHash& hash, std::span<AttentionGroup* const> joint,
                               std::span<BlockId> found) {
  for (std::size_t i = 0; i < joint.size(); ++i) {
    const std::optional<BlockId> block = joint[i]->FindCached(hash);
    if (!block) return false;
    found[i] = *block;
  }
  return true;
}

std::int32_t AttentionGroup::Revived(std::span<const BlockId> hits, std::size_t first) const {
  std::int32_t revived = 0;
  for (std::size_t i = first; i < hits.size(); ++i) {
    if (hits[i] != kNullBlock && pool_.reference_count(hits[i]) == 0) ++revived;
  }
  return revived;
}

std::int32_t AttentionGroup::BlocksNeeded(RequestHandle request, const BlockDemand& demand,
                                          std::span<const BlockId> hits,
                                          std::int32_t most_blocks) const {
  const State& state = At(request);
  const auto length = static_cast<std::int32_t>(state.table.length);
  const std::int32_t required = std::min(CeilDiv(demand.slots, block_size()), most_blocks);
  if (state.num_cached_blocks != kNotCounted) {
    TALLY_CHECK(hits.empty(), "a request that holds blocks has %zu hits", hits.size());
    return std::max(required - length, 0);
  }
  const std::int32_t skipped_blocks = SkippedTokens(demand.computed) / block_size();
  const std::int32_t present = static_cast<std::int32_t>(hits.size()) + length;
  const std::int32_t fresh = std::max(required - std::max(skipped_blocks, present), 0);
  return fresh + Revived(hits, static_cast<std::size_t>(std::max(0, skipped_blocks - length)));
}

bool AttentionGroup::AppendFresh(State& state, std::int32_t count) {
  if (static_cast<std::uint32_t>(count) > pool_.num_free()) {
    growth_fault_ = {.missing_blocks = count};
    return false;
  }
  if (count == 0) return true;
  if (state.table.length == 0) ++num_owners_;
  const std::span<BlockId> fresh = tables_.Extend(state.table, static_cast<std::uint32_t>(count));
  pool_.Allocate(fresh);
  if (notes_fresh_blocks_) fresh_blocks_.insert(fresh_blocks_.end(), fresh.begin(), fresh.end());
  return true;
}

void AttentionGroup::AppendBlock(State& state, BlockId block) {
  if (state.table.length == 0) ++num_owners_;
  tables_.Extend(state.table, 1)[0] = block;
}

void AttentionGroup::AppendNulls(State& state, std::uint32_t count) {
  if (state.table.length == 0) ++num_owners_;
  const std::span<BlockId> added = tables_.Extend(state.table, count);
  std::fill(added.begin(), added.end(), kNullBlock);
}

std::int32_t AttentionGroup::LeadingNulls(RequestHandle request) const {
  const std::span<const BlockId> table = Table(request);
  const auto end = std::partition_point(table.begin(), table.end(),
                                        [](BlockId block) { return block == kNullBlock; });
  return static_cast<std::int32_t>(end - table.begin());
}

void AttentionGroup::AdoptHits(RequestHandle request, std::span<const BlockId> hits,
                               std::int32_t total) {
  State& state = At(request);
  if (state.num_cached_blocks != kNotCounted) {
    TALLY_CHECK(hits.empty(), "a request that holds blocks adopts %zu more", hits.size());
    return;
  }
  TALLY_CHECK(state.table.length == 0, "a table of %u blocks adopts a prefix", state.table.length);
  const auto skipped_blocks =
      static_cast<std::size_t>(std::max(SkippedTokens(total), 0) / block_size());
  hits = hits.subspan(std::min(hits.size(), skipped_blocks));
  pool_.Touch(hits);
  const std::size_t length = skipped_blocks + hits.size();
  if (length > 0) {
    ++num_owners_;
    std::span<BlockId> table = tables_.Extend(state.table, static_cast<std::uint32_t>(length));
    std::fill(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(skipped_blocks),
              kNullBlock);
    std::copy(hits.begin(), hits.end(),
              table.begin() + static_cast<std::ptrdiff_t>(skipped_blocks));
  }
  state.num_cached_blocks = static_cast<std::int32_t>(length);
}

bool AttentionGroup::Grow(RequestHandle request, const BlockDemand& demand,
                          std::uint32_t& first_new) {
  first_new = At(request).table.length;
  return GrowTo(request, demand.slots);
}

bool AttentionGroup::GrowTo(RequestHandle request, std::int32_t tokens) {
  State& state = At(request);
  const std::int32_t count =
      CeilDiv(tokens, block_size()) - static_cast<std::int32_t>(state.table.length);
  return count <= 0 || AppendFresh(state, count);
}

void AttentionGroup::Register(RequestHandle request, std::int32_t tokens,
                              std::span<const BlockHash> hashes) {
  State& state = At(request);
  const std::int32_t full_blocks = tokens / block_size();
  const std::int32_t first = std::max(state.num_cached_blocks, 0);
  if (first >= full_blocks) return;
  TALLY_CHECK(static_cast<std::size_t>(full_blocks) <= hashes.size(), "%d full blocks, %zu hashes",
              full_blocks, hashes.size());
  const std::span<BlockId> table = Mutable(state);
  // A table may be shorter than its tokens only in a session that outgrew max_model_len (MGR-34).
  const auto end = std::min(static_cast<std::size_t>(full_blocks), table.size());
  for (auto i = static_cast<std::size_t>(first); i < end; ++i) {
    if (table[i] != kNullBlock) pool_.Register(GroupKey(hashes[i], index_), table[i]);
  }
  if (KvEventLog* log = pool_.event_log(); log != nullptr) {
    log->Stored(request, index_, block_size(), table, static_cast<std::size_t>(first), end);
  }
  state.num_cached_blocks = full_blocks;
}

void AttentionGroup::RemoveSkipped(RequestHandle request, std::int32_t total_computed) {
  const std::int32_t skipped_tokens = SkippedTokens(total_computed);
  if (skipped_tokens <= 0) return;
  const std::span<BlockId> table = Mutable(At(request));
  const std::size_t skipped_blocks =
      std::min(static_cast<std::size_t>(skipped_tokens / block_size()), table.size());
  // Null blocks form a prefix, so the scan down from the newest skipped block ends at the first
  // one.
  std::size_t begin = skipped_blocks;
  while (begin > 0 && table[begin - 1] != kNullBlock) --begin;
  const std::span<BlockId> skipped = table.subspan(begin, skipped_blocks - begin);
  if (skipped.empty()) return;
  pool_.FreeTailFirst(skipped);
  std::fill(skipped.begin(), skipped.end(), kNullBlock);
}

void AttentionGroup::Free(RequestHandle request) {
  State& state = At(request);
  if (state.table.length > 0) {
    pool_.FreeTailFirst(Mutable(state));
    --num_owners_;
  }
  tables_.Release(state.table);
  state.num_cached_blocks = kNotCounted;
}

std::int32_t AttentionGroup::SlotCapacity(RequestHandle request) const {
  const std::int64_t slots = std::int64_t{At(request).table.length} * block_size();
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(slots, std::numeric_limits<std::int32_t>::max()));
}

std::int32_t AttentionGroup::NextRegistration(RequestHandle request) const {
  const std::int64_t tokens =
      (std::int64_t{std::max(At(request).num_cached_blocks, 0)} + 1) * block_size();
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(tokens, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace tally
