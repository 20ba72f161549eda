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
  widened.slots += block_size() * spec_.speculative_blocks;
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

std::int32_t Mamba::BlocksNeeded(RequestHandle request, const BlockDemand& demand,
                                 std::span<const BlockId> hits, std::int32_t most_blocks) const {
  if (!hits.empty() && hits.back() != kNullBlock && pool_.IsCached(hits.back()) &&
      registered_this_step_.contains(pool_.KeyOf(hits.back()))) {
    return static_cast<std::int32_t>(pool_.num_blocks()) +
           1;  // more than there are: wait for the next step
  }
  if (!align()) return AttentionGroup::BlocksNeeded(request, WithSpares(demand), hits, most_blocks);
  const std::int32_t required = CeilDiv(demand.main, block_size()) + spec_.speculative_blocks;
  std::int32_t fresh = required - static_cast<std::int32_t>(hits.size() + At(request).table.length);
  if (fresh > 0) {
    fresh = aligned_[Index(request)].allocated ? 1 : 1 + spec_.speculative_blocks;
  } else if (!needs_go_below_zero_) {
    fresh = 0;
  }
  return fresh + Revived(hits, 0);
}

bool Mamba::GrowToExternal(RequestHandle request, std::int32_t tokens) {
  // Room for the tokens themselves; the spares come with the step's own growth.
  return AttentionGroup::GrowToExternal(request, tokens);
}

bool Mamba::Grow(RequestHandle request, const BlockDemand& demand, std::uint32_t& first_new) {
  if (align()) return GrowAligned(request, demand, first_new);
  return AttentionGroup::Grow(request, WithSpares(demand), first_new);
}

bool Mamba::GrowAligned(RequestHandle request, const BlockDemand& demand,
                        std::uint32_t& first_new) {
  State& state = At(request);
  Aligned& aligned = aligned_[Index(request)];
  const auto required = static_cast<std::uint32_t>(CeilDiv(demand.main, block_size())) + spares();
  const std::uint32_t previous = state.table.length;
  first_new = previous;
  if (required == previous) return true;
  // Fewer drafts than in the last step: upstream asserts (DEF-3), the table is simply long enough.
  if (required < previous) {
    growth_fault_ = {.wanted_length = required, .present_length = previous};
    return !needs_go_below_zero_;
  }
  if (aligned.allocated) {
    aligned.last_state = previous - 1 - spares();
  } else if (previous > 0) {
    aligned.last_state = previous - 1;  // the hit
  }
  // States between the newest and the one that this step ends with are never materialised.
  const std::uint32_t last_place = required - spares() - 1;
  if (last_place > previous) AppendNulls(state, last_place - previous);
  if (aligned.allocated) {
    // The spares of the last step move behind the new state; those that stand behind it already
    // stay.
    for (std::uint32_t i = previous - spares(); i < previous && i < last_place; ++i) {
      const BlockId moved = Mutable(state)[i];
      AppendBlock(state, moved);
      Mutable(state)[i] = kNullBlock;
    }
  }
  const auto missing =
      static_cast<std::int32_t>(required) - static_cast<std::int32_t>(state.table.length);
  TALLY_CHECK(missing >= 0, "%u entries, %u wanted", state.table.length, required);
  if (!AppendFresh(state, missing)) return false;
  aligned.allocated = true;
  return true;
}

void Mamba::Register(RequestHandle request, std::int32_t tokens,
                     std::span<const BlockHash> hashes) {
  const std::int32_t before = std::max(num_cached_blocks(request), 0);
  AttentionGroup::Register(request, tokens, hashes);
  if (!caching_) return;
  const std::span<const BlockId> table = Table(request);
  for (std::int32_t i = before;
       i < num_cached_blocks(request) && i < static_cast<std::int32_t>(table.size()); ++i) {
    const BlockId block = table[static_cast<std::size_t>(i)];
    if (block != kNullBlock) registered_this_step_.insert(pool_.KeyOf(block));
  }
}

void Mamba::RemoveSkipped(RequestHandle request, std::int32_t total_computed) {
  // The spares hold the states of drafts that may have been rejected.
  const std::int32_t computed = std::max(0, total_computed - spec_.speculative_blocks);
  AttentionGroup::RemoveSkipped(request, computed);
  if (!align()) return;
  // The scan from the newest skipped state stops at the null blocks between states: the last one is
  // freed by itself.
  const std::optional<std::uint32_t> last = aligned_[Index(request)].last_state;
  if (!last || static_cast<std::int32_t>(*last) >= CeilDiv(computed, block_size()) - 1) return;
  BlockId& block = Mutable(At(request))[*last];
  if (block == kNullBlock) return;
  pool_.FreeTailFirst(std::span(&block, 1));
  block = kNullBlock;
}

void Mamba::Free(RequestHandle request) {
  AttentionGroup::Free(request);
  aligned_[Index(request)] = {};
}

std::int32_t Mamba::SlotCapacity(RequestHandle request) const {
  if (align()) return 0;
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
