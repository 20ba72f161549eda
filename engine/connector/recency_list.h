// Keys in the order of their last use, each with a value: a list and an index.
#ifndef TALLY_ENGINE_CONNECTOR_RECENCY_LIST_H_
#define TALLY_ENGINE_CONNECTOR_RECENCY_LIST_H_

#include <cstddef>
#include <list>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/kv/block_hash.h"

namespace tally {

template <typename Value>
class RecencyList {
 public:
  using Entry = std::pair<BlockHash, Value>;

  std::size_t size() const { return order_.size(); }
  bool empty() const { return order_.empty(); }
  bool Contains(const BlockHash& key) const { return places_.contains(key); }
  Value* Find(const BlockHash& key) {
    const auto found = places_.find(key);
    return found == places_.end() ? nullptr : &found->second->second;
  }
  // Wants a key that is not there. O(1).
  void PushNewest(const BlockHash& key, Value value) {
    order_.emplace_back(key, std::move(value));
    places_.emplace(key, std::prev(order_.end()));
  }
  // False for a key that is not there. O(1).
  bool MoveToNewest(const BlockHash& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return false;
    order_.splice(order_.end(), order_, found->second);
    return true;
  }
  std::optional<Value> Remove(const BlockHash& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return std::nullopt;
    std::optional<Value> value(std::move(found->second->second));
    order_.erase(found->second);
    places_.erase(found);
    return value;
  }
  void PopOldest() { Remove(order_.front().first); }
  // From the oldest to the newest.
  auto begin() const { return order_.begin(); }
  auto end() const { return order_.end(); }

 private:
  std::list<Entry> order_;
  absl::flat_hash_map<BlockHash, typename std::list<Entry>::iterator> places_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_RECENCY_LIST_H_
