// The blocks of host memory that hold offloaded KV: which key is where, what is being stored and
// read, what makes room (connectors.md 3.25 to 3.28).
#ifndef TALLY_ENGINE_CONNECTOR_OFFLOAD_MANAGER_H_
#define TALLY_ENGINE_CONNECTOR_OFFLOAD_MANAGER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/connector/offload_policy.h"

namespace tally {

class OffloadManager {
 public:
  // `num_slots` blocks of host memory.
  OffloadManager(EvictionPolicy policy, std::uint32_t num_slots)
      : policy_(CreateOffloadPolicy(policy, num_slots)), num_slots_(num_slots) {}

  // Whether a key can be loaded now.
  bool Holds(const BlockHash& key) const {
    const OffloadSlot* slot = policy_->Find(key);
    return slot != nullptr && slot->ready();
  }
  std::size_t size() const { return policy_->size(); }
  std::uint32_t num_slots() const { return num_slots_; }
  const OffloadPolicy& policy() const { return *policy_; }

  void Touch(std::span<const BlockHash> keys) { policy_->Touch(keys); }

  // Pins the slots of keys until CompleteLoad; answers them in order. Wants keys that it Holds.
  std::vector<std::uint32_t> PrepareLoad(std::span<const BlockHash> keys);
  void CompleteLoad(std::span<const BlockHash> keys);

  struct Store {
    std::vector<BlockHash> keys;       // of those given, the ones that are not held
    std::vector<std::uint32_t> slots;  // where to write each; not loadable until CompleteStore
    std::vector<BlockHash> evicted;    // what made room, in order
  };
  // Nothing, and no change, when there is no room for all new keys without evicting one of the keys
  // given.
  std::optional<Store> PrepareStore(std::span<const BlockHash> keys);
  // Makes stored keys loadable; answers those that were not before.
  std::vector<BlockHash> CompleteStore(std::span<const BlockHash> keys);

 private:
  std::size_t num_free() const { return num_slots_ - num_used_ + freed_.size(); }
  std::uint32_t TakeSlot();

  std::unique_ptr<OffloadPolicy> policy_;
  const std::uint32_t num_slots_;
  std::uint32_t num_used_ = 0;        // slots that were ever used: the first so many
  std::vector<std::uint32_t> freed_;  // the last one freed is used first
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_OFFLOAD_MANAGER_H_
