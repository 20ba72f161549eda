#include "engine/kv/prefix_search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "engine/base/check.h"

namespace tally {
namespace {

// The identity of a block that spans several hashes. Upstream concatenates them; the last one
// covers the others already, but the block size has to enter, or a large and a small block of one
// group kind would share a key.
BlockHash Join(std::span<const BlockHash> hashes) {
  BlockHash joined = hashes.back();
  joined.high ^= std::rotl(hashes.front().low, 17) + 0x9E3779B97F4A7C15ULL * hashes.size();
  return joined;
}

}  // namespace

PrefixSearch::PrefixSearch(std::span<const std::unique_ptr<AttentionGroup>> groups,
                           const KvCacheConfig& config)
    : hash_block_size_(config.block_size) {
  for (const std::unique_ptr<AttentionGroup>& group : groups) {
    alignment_ = std::lcm(alignment_, group->block_size());
    auto same = std::find_if(sets_.begin(), sets_.end(), [&](const AttentionSet& set) {
      return set.groups[0]->spec() == group->spec();
    });
    if (same == sets_.end()) {
      AttentionSet set;
      set.full = group->spec().kind == AttentionKind::kFull;
      set.drops_last =
          config.use_eagle && (group->DropsLastBlock() || config.eagle_lengthens_mamba_hits);
      same = sets_.insert(sets_.end(), std::move(set));
    }
    same->groups.push_back(group.get());
  }
  std::stable_partition(sets_.begin(), sets_.end(),
                        [](const AttentionSet& set) { return set.full; });
}

std::span<const BlockHash> PrefixSearch::HashesAt(std::int32_t block_size,
                                                  std::span<const BlockHash> hashes) {
  if (block_size == hash_block_size_) return hashes;
  const auto per_block = static_cast<std::size_t>(block_size / hash_block_size_);
  joined_.clear();
  for (std::size_t begin = 0; begin + per_block <= hashes.size(); begin += per_block) {
    joined_.push_back(Join(hashes.subspan(begin, per_block)));
  }
  return joined_;
}

std::int32_t PrefixSearch::SearchSet(AttentionSet& set, std::int32_t max_tokens, bool drop_last,
                                     PrefixHit& hit) {
  std::array<std::vector<BlockId>*, kMaxKvGroups> lists;
  for (std::size_t i = 0; i < set.groups.size(); ++i)
    lists[i] = &hit.blocks[set.groups[i]->index()];
  AttentionGroup& first = *set.groups[0];
  const HitQuery query{HashesAt(first.block_size(), hashes_), max_tokens, alignment_, drop_last};
  first.FindLongestHit(query, set.groups, std::span(lists).first(set.groups.size()));
  return static_cast<std::int32_t>(lists[0]->size()) * first.block_size();
}

void PrefixSearch::Find(std::span<const BlockHash> hashes, std::int32_t max_tokens,
                        PrefixHit& hit) {
  hashes_ = hashes;
  if (sets_.size() == 1) {
    hit.num_tokens = SearchSet(sets_[0], max_tokens, sets_[0].drops_last, hit);
    return;
  }
  for (AttentionSet& set : sets_) set.searched = set.dropped_last = false;
  // A group may shorten the hit of those before it: repeat until all agree. The candidate only
  // shrinks.
  std::int32_t candidate = max_tokens;
  while (true) {
    std::int32_t current = candidate;
    for (AttentionSet& set : sets_) {
      const std::int32_t size = set.groups[0]->block_size();
      if (set.full &&
          set.searched) {  // closed downwards: a shorter hit is a part of the longer one
        current = current / size * size;
        continue;
      }
      // EAGLE's drop is made once a candidate: a group that dropped already must not lose a block
      // at every pass (GRP-74).
      const bool drop = set.drops_last && !set.dropped_last;
      const std::int32_t bound = drop ? std::min(current + size, max_tokens) : current;
      const std::int32_t found = SearchSet(set, bound, drop, hit);
      if (drop) {
        set.dropped_last = true;
      } else if (found < current) {
        for (AttentionSet& other : sets_) other.dropped_last = false;
      }
      set.searched = true;
      current = found;
    }
    if (current >= candidate) break;
    candidate = current;
    if (sets_.size() == 2 && sets_[0].full) break;
  }
  if (sets_[0].full) {
    const auto blocks = static_cast<std::size_t>(candidate / sets_[0].groups[0]->block_size());
    for (AttentionGroup* group : sets_[0].groups) {
      std::vector<BlockId>& found = hit.blocks[group->index()];
      found.resize(std::min(found.size(), blocks));
    }
  }
  hit.num_tokens = candidate;
}

}  // namespace tally
