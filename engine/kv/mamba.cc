#include "engine/kv/mamba.h"

#include <array>

#include "engine/base/check.h"

namespace tally {

void Mamba::Reserve(std::size_t num_handles) {
  AttentionGroup::Reserve(num_handles);
  aligned_.resize(std::max(num_handles, aligned_.size()));
}

BlockDemand Mamba::WithSpares(const BlockDemand& demand) const {
  BlockDemand widened = demand;
  widened.slots += block_size() * spec_.speculative_blocks;  // GRP-43
  return widened;
}

std::int32_t Mamba::BlocksForAlone(std::int32_t tokens) const {
  switch (spec_.mamba_mode) {
    case MambaMode::kNone:
    case MambaMode::kAll:
      return CeilDiv(tokens, block_size()) + spec_.speculative_blocks;
    case MambaMode::kAlign:
      break;
  }
  return 2 + spec_.speculative_blocks;  // the newest state, the one before it, and the spares
}

void Mamba::FindLongestHit(const HitQuery& query, std::span<AttentionGroup* const> joint,
                           std::span<std::vector<BlockId>* const> hits) const {
  for (std::vector<BlockId>* blocks : hits) blocks->clear();
  std::array<BlockId, kMaxKvGroups> found;
  for (auto i =
           std::min(static_cast<std::size_t>(query.max_tokens / block_size()), query.hashes.size());
       i-- > 0;) {
    if (static_cast<std::int64_t>(i + 1) * block_size() % query.alignment != 0) continue;
    if (!FindInAll(query.hashes[i], joint, found)) continue;
    for (std::size_t group = 0; group < hits.size(); ++group) {
      hits[group]->assign(i, kNullBlock);
      hits[group]->push_back(found[group]);
    }
    return;
  }
}

bool Mamba::IsComputedInThisStep(std::span<const BlockId> hits) const {
  return !hits.empty() && hits.back() != kNullBlock && pool_.IsCached(hits.back()) &&
         registered_this_step_.contains(pool_.KeyOf(hits.back()));
}

std::int32_t Mamba::BlocksNeeded(RequestHandle request, const BlockDemand& demand,
                                 std::span<const BlockId> hits, std::int32_t most_blocks) const {
  if (IsComputedInThisStep(hits)) {
    // More than there are, so that the request waits for the next step.
    return static_cast<std::int32_t>(pool_.num_blocks()) + 1;
  }
  if (!align()) return AttentionGroup::BlocksNeeded(request, WithSpares(demand), hits, most_blocks);
  const std::size_t present = hits.size() + At(request).table.length;
  std::int32_t fresh =
      static_cast<std::int32_t>(AlignedLength(demand.main)) - static_cast<std::int32_t>(present);
  if (fresh > 0) {
    // However far the table grows, only one place more is a block: between states are null blocks.
    fresh = aligned_[Index(request)].has_spares ? 1 : 1 + spec_.speculative_blocks;
  } else if (!needs_go_below_zero_) {
    fresh = 0;
  }
  return fresh + Revived(hits, 0);
}

bool Mamba::Grow(RequestHandle request, const BlockDemand& demand, std::uint32_t& first_new) {
  // Look-ahead slots would break the alignment, and drafters have no Mamba layers (GRP-45).
  if (align()) return GrowAligned(request, demand.main, first_new);
  return AttentionGroup::Grow(request, WithSpares(demand), first_new);
}

bool Mamba::GrowAligned(RequestHandle request, std::int32_t tokens, std::uint32_t& first_new) {
  State& state = At(request);
  Aligned& aligned = aligned_[Index(request)];
  const std::uint32_t wanted = AlignedLength(tokens);
  const std::uint32_t present = state.table.length;
  first_new = present;
  if (wanted == present) return true;
  if (wanted < present) {
    // Drafts that reached the next block were refused, and this step has fewer. With fewer spares
    // than a block has tokens nothing was moved for them: the places that the step uses are there.
    growth_fault_ = {.wanted_length = wanted, .present_length = present};
    return !needs_go_below_zero_;
  }
  if (aligned.has_spares) {
    aligned.previous_state = present - 1 - num_spares();
  } else if (present > 0) {
    aligned.previous_state = present - 1;  // the hit
  }
  const std::uint32_t new_state = wanted - num_spares() - 1;  // its place
  if (new_state > present) AppendNulls(state, new_state - present);
  if (aligned.has_spares) {
    // Spares before the new state move behind it; those that stand at its place or behind stay.
    for (std::uint32_t i = present - num_spares(); i < present && i < new_state; ++i) {
      const BlockId moved = Mutable(state)[i];
      AppendBlock(state, moved);
      Mutable(state)[i] = kNullBlock;
    }
  }
  TALLY_CHECK(state.table.length <= wanted, "%u entries, %u wanted", state.table.length, wanted);
  if (!AppendFresh(state, static_cast<std::int32_t>(wanted - state.table.length))) return false;
  aligned.has_spares = true;
  return true;
}

void Mamba::Register(RequestHandle request, std::int32_t tokens,
                     std::span<const BlockHash> hashes) {
  const std::int32_t before = std::max(num_cached_blocks(request), 0);
  AttentionGroup::Register(request, tokens, hashes);
  if (!caching_) return;
  // These states exist once the step is computed.
  const std::span<const BlockId> table = Table(request);
  for (std::int32_t i = before;
       i < num_cached_blocks(request) && i < static_cast<std::int32_t>(table.size()); ++i) {
    const BlockId block = table[static_cast<std::size_t>(i)];
    if (block != kNullBlock) registered_this_step_.insert(pool_.KeyOf(block));
  }
}

void Mamba::RemoveSkipped(RequestHandle request, std::int32_t total_computed) {
  // Drafts among the computed tokens may still be refused, and then an older state is read.
  const std::int32_t computed = std::max(0, total_computed - spec_.speculative_blocks);
  AttentionGroup::RemoveSkipped(request, computed);
  if (!align()) return;
  // The scan down from the newest skipped state ended at the null blocks before it: the state that
  // the last growth started from may stand before these.
  const std::optional<std::uint32_t> previous = aligned_[Index(request)].previous_state;
  const std::int32_t newest = CeilDiv(computed, block_size()) - 1;
  if (!previous || static_cast<std::int32_t>(*previous) >= newest) return;
  BlockId& block = Mutable(At(request))[*previous];
  if (block == kNullBlock) return;
  pool_.FreeTailFirst(std::span(&block, 1));
  block = kNullBlock;
}

void Mamba::Free(RequestHandle request) {
  AttentionGroup::Free(request);
  aligned_[Index(request)] = {};
}

std::int32_t Mamba::SlotCapacity(RequestHandle request) const {
  if (align()) return 0;  // no step is without work: states move
  return std::max(0,
                  AttentionGroup::SlotCapacity(request) - block_size() * spec_.speculative_blocks);
}

std::int32_t Mamba::NextSkip(RequestHandle request) const {
  if (align()) return 0;
  const std::int64_t computed =
      (std::int64_t{LeadingNulls(request)} + 1) * block_size() + 1 + spec_.speculative_blocks;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(computed, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace tally
