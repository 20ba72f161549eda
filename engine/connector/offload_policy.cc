#include "engine/connector/offload_policy.h"

#include <algorithm>

#include "engine/base/check.h"

namespace tally {
namespace {

using Entries = std::vector<std::pair<BlockHash, OffloadSlot>>;

}  // namespace

void LruOffloadPolicy::Touch(std::span<const BlockHash> keys) {
  for (std::size_t i = keys.size(); i-- > 0;) slots_.MoveToNewest(keys[i]);
}

std::optional<Entries> LruOffloadPolicy::Evict(std::size_t count,
                                               const absl::flat_hash_set<BlockHash>& kept) {
  Entries victims;
  for (const auto& entry : slots_) {
    if (victims.size() == count) break;
    if (entry.second.evictable() && !kept.contains(entry.first)) victims.push_back(entry);
  }
  if (victims.size() < count) return std::nullopt;
  for (const auto& victim : victims) slots_.Remove(victim.first);
  return victims;
}

OffloadSlot* ArcOffloadPolicy::Find(const BlockHash& key) {
  OffloadSlot* slot = recent_.Find(key);
  return slot != nullptr ? slot : frequent_.Find(key);
}

void ArcOffloadPolicy::Insert(const BlockHash& key, OffloadSlot slot) {
  recent_.PushNewest(key, slot);
  recent_ghosts_.Remove(key);
  frequent_ghosts_.Remove(key);
}

void ArcOffloadPolicy::Touch(std::span<const BlockHash> keys) {
  const auto ratio = [](std::size_t a, std::size_t b) {
    return std::max(1.0, static_cast<double>(a) / static_cast<double>(b));
  };
  for (std::size_t i = keys.size(); i-- > 0;) {
    const BlockHash& key = keys[i];
    if (const OffloadSlot* slot = recent_.Find(key)) {
      if (slot->ready()) {
        frequent_.PushNewest(key, *recent_.Remove(key));
      } else {
        recent_.MoveToNewest(key);
      }
    } else if (frequent_.MoveToNewest(key)) {
      continue;
    } else if (recent_ghosts_.Contains(key)) {
      // `recent` was too small for it.
      recent_target_ =
          std::min(recent_target_ + ratio(frequent_ghosts_.size(), recent_ghosts_.size()),
                   static_cast<double>(capacity_));
      recent_ghosts_.MoveToNewest(key);
    } else if (frequent_ghosts_.Contains(key)) {
      recent_target_ =
          std::max(recent_target_ - ratio(recent_ghosts_.size(), frequent_ghosts_.size()), 0.0);
      frequent_ghosts_.MoveToNewest(key);
    }
  }
}

std::optional<Entries> ArcOffloadPolicy::Evict(std::size_t count,
                                               const absl::flat_hash_set<BlockHash>& kept) {
  const auto may_go = [&](const RecencyList<OffloadSlot>::Entry& entry) {
    return entry.second.evictable() && !kept.contains(entry.first);
  };
  // One after the other, as if the ones before were gone; nothing changes until all are found.
  Entries victims;
  std::vector<bool> from_recent;
  auto next_recent = recent_.begin();
  auto next_frequent = frequent_.begin();
  std::size_t recent_left = recent_.size();
  while (victims.size() < count) {
    if (recent_left >= static_cast<std::size_t>(recent_target_)) {
      next_recent = std::find_if(next_recent, recent_.end(), may_go);
      if (next_recent != recent_.end()) {
        victims.push_back(*next_recent++);
        from_recent.push_back(true);
        --recent_left;
        continue;
      }
    }
    next_frequent = std::find_if(next_frequent, frequent_.end(), may_go);
    if (next_frequent == frequent_.end()) return std::nullopt;
    victims.push_back(*next_frequent++);
    from_recent.push_back(false);
  }
  for (std::size_t i = 0; i < victims.size(); ++i) {
    const BlockHash& key = victims[i].first;
    (from_recent[i] ? recent_ : frequent_).Remove(key);
    (from_recent[i] ? recent_ghosts_ : frequent_ghosts_).PushNewest(key, {});
  }
  for (RecencyList<Ghost>* ghosts : {&recent_ghosts_, &frequent_ghosts_}) {
    while (ghosts->size() > capacity_) ghosts->PopOldest();
  }
  return victims;
}

std::unique_ptr<OffloadPolicy> CreateOffloadPolicy(EvictionPolicy policy, std::size_t capacity) {
  switch (policy) {
    case EvictionPolicy::kLru:
      return std::make_unique<LruOffloadPolicy>();
    case EvictionPolicy::kArc:
      return std::make_unique<ArcOffloadPolicy>(capacity);
  }
  TALLY_CHECK(false, "policy %d", static_cast<int>(policy));
}

}  // namespace tally
