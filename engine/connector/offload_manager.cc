#include "engine/connector/offload_manager.h"

#include "engine/base/check.h"

namespace tally {

std::vector<std::uint32_t> OffloadManager::PrepareLoad(std::span<const BlockHash> keys) {
  std::vector<std::uint32_t> slots;
  slots.reserve(keys.size());
  for (const BlockHash& key : keys) {
    OffloadSlot* slot = policy_->Find(key);
    TALLY_CHECK(slot != nullptr && slot->ready(), "a key that cannot be loaded");
    ++slot->references;
    slots.push_back(slot->id);
  }
  return slots;
}

void OffloadManager::CompleteLoad(std::span<const BlockHash> keys) {
  for (const BlockHash& key : keys) {
    OffloadSlot* slot = policy_->Find(key);
    TALLY_CHECK(slot != nullptr && slot->references > 0, "a key that is not being loaded");
    --slot->references;
  }
}

std::uint32_t OffloadManager::TakeSlot() {
  if (num_used_ < num_slots_) return num_used_++;
  const std::uint32_t slot = freed_.back();
  freed_.pop_back();
  return slot;
}

std::optional<OffloadManager::Store> OffloadManager::PrepareStore(std::span<const BlockHash> keys) {
  Store store;
  for (const BlockHash& key : keys) {
    if (policy_->Find(key) == nullptr) store.keys.push_back(key);
  }
  if (store.keys.empty()) return store;
  if (store.keys.size() > num_free()) {
    const absl::flat_hash_set<BlockHash> kept(keys.begin(), keys.end());
    const auto victims = policy_->Evict(store.keys.size() - num_free(), kept);
    if (!victims) return std::nullopt;
    for (const auto& [key, slot] : *victims) {
      freed_.push_back(slot.id);
      store.evicted.push_back(key);
    }
  }
  for (const BlockHash& key : store.keys) {
    store.slots.push_back(TakeSlot());
    policy_->Insert(key, {.id = store.slots.back()});
  }
  return store;
}

std::vector<BlockHash> OffloadManager::CompleteStore(std::span<const BlockHash> keys) {
  std::vector<BlockHash> completed;
  for (const BlockHash& key : keys) {
    OffloadSlot* slot = policy_->Find(key);
    if (slot == nullptr || slot->ready()) continue;
    slot->references = 0;
    completed.push_back(key);
  }
  return completed;
}

}  // namespace tally
