// Which offloaded blocks stay in host memory: LRU and ARC, as vLLM's CPU offloading keeps them
// (connectors.md 3.25 to 3.28).
#ifndef TALLY_ENGINE_CONNECTOR_OFFLOAD_POLICY_H_
#define TALLY_ENGINE_CONNECTOR_OFFLOAD_POLICY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/connector/recency_list.h"
#include "engine/kv/block_hash.h"

namespace tally {

// A block in host memory.
struct OffloadSlot {
  static constexpr std::int32_t kNotReady = -1;

  std::uint32_t id = 0;                 // its place in the host's arena
  std::int32_t references = kNotReady;  // loads that read it; kNotReady while it is stored
  bool ready() const { return references >= 0; }
  bool evictable() const { return references == 0; }
};

class OffloadPolicy {
 public:
  virtual ~OffloadPolicy() = default;

  // The slot of a key; null for one that is not held. O(1).
  virtual OffloadSlot* Find(const BlockHash& key) = 0;
  // Adds a key that is not held.
  virtual void Insert(const BlockHash& key, OffloadSlot slot) = 0;
  // Marks keys as used, the last one first, so that earlier blocks of a sequence are the more
  // recent. O(keys).
  virtual void Touch(std::span<const BlockHash> keys) = 0;
  // Takes exactly `count` evictable keys out, none of `kept`; nothing, and no change, when there
  // are not so many. O(count + keys that are passed over).
  virtual std::optional<std::vector<std::pair<BlockHash, OffloadSlot>>> Evict(
      std::size_t count, const absl::flat_hash_set<BlockHash>& kept) = 0;
  virtual std::size_t size() const = 0;
};

// Least recently used goes first.
class LruOffloadPolicy final : public OffloadPolicy {
 public:
  OffloadSlot* Find(const BlockHash& key) override { return slots_.Find(key); }
  void Insert(const BlockHash& key, OffloadSlot slot) override { slots_.PushNewest(key, slot); }
  void Touch(std::span<const BlockHash> keys) override;
  std::optional<std::vector<std::pair<BlockHash, OffloadSlot>>> Evict(
      std::size_t count, const absl::flat_hash_set<BlockHash>& kept) override;
  std::size_t size() const override { return slots_.size(); }

 private:
  RecencyList<OffloadSlot> slots_;
};

// Adaptive replacement (Megiddo and Modha, FAST 2003) with vLLM's deviations: `recent` holds keys
// seen once, `frequent` those seen again; the ghosts remember who left them and move the size that
// `recent` should have. A key that is still being stored is not "seen again".
class ArcOffloadPolicy final : public OffloadPolicy {
 public:
  explicit ArcOffloadPolicy(std::size_t capacity) : capacity_(capacity) {}

  OffloadSlot* Find(const BlockHash& key) override;
  void Insert(const BlockHash& key, OffloadSlot slot) override;
  void Touch(std::span<const BlockHash> keys) override;
  std::optional<std::vector<std::pair<BlockHash, OffloadSlot>>> Evict(
      std::size_t count, const absl::flat_hash_set<BlockHash>& kept) override;
  std::size_t size() const override { return recent_.size() + frequent_.size(); }
  double recent_target() const { return recent_target_; }

 private:
  struct Ghost {};

  const std::size_t capacity_;
  double recent_target_ = 0;
  RecencyList<OffloadSlot> recent_;
  RecencyList<OffloadSlot> frequent_;
  RecencyList<Ghost> recent_ghosts_;
  RecencyList<Ghost> frequent_ghosts_;
};

enum class EvictionPolicy : std::uint8_t { kLru, kArc };
std::unique_ptr<OffloadPolicy> CreateOffloadPolicy(EvictionPolicy policy, std::size_t capacity);

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_OFFLOAD_POLICY_H_
