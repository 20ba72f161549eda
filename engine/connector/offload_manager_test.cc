// What stays in host memory: worked examples of connectors.md 3.27 and 3.28, and both policies
// beside models that are plain lists.
#include "engine/connector/offload_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace tally {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

BlockHash Key(std::uint64_t number) { return {number, 0}; }
std::vector<BlockHash> Keys(std::initializer_list<std::uint64_t> numbers) {
  std::vector<BlockHash> keys;
  for (const std::uint64_t number : numbers) keys.push_back(Key(number));
  return keys;
}
void StoreAll(OffloadManager& manager, const std::vector<BlockHash>& keys) {
  ASSERT_TRUE(manager.PrepareStore(keys).has_value());
  manager.CompleteStore(keys);
}

TEST(OffloadManagerTest, TheLeastRecentlyUsedMakesRoom) {
  OffloadManager manager(EvictionPolicy::kLru, 4);
  StoreAll(manager, Keys({1, 2, 3, 4}));
  manager.Touch(Keys({1, 2}));
  const auto five = manager.PrepareStore(Keys({5}));
  ASSERT_TRUE(five.has_value());
  EXPECT_THAT(five->evicted, ElementsAre(Key(3)));
  EXPECT_THAT(five->slots, ElementsAre(2U));  // that of 3
  EXPECT_FALSE(manager.Holds(Key(5)));        // not before it is stored

  EXPECT_THAT(manager.PrepareLoad(Keys({1})), ElementsAre(0U));
  // 2 and 4 could go, 1 is read and 5 written: three do not fit, and nothing changes.
  EXPECT_FALSE(manager.PrepareStore(Keys({6, 7, 8})).has_value());
  EXPECT_TRUE(manager.Holds(Key(2)) && manager.Holds(Key(4)));
  // 2 is held and stays.
  const auto six = manager.PrepareStore(Keys({6, 2}));
  ASSERT_TRUE(six.has_value());
  EXPECT_THAT(six->keys, ElementsAre(Key(6)));
  EXPECT_THAT(six->evicted, ElementsAre(Key(4)));
}

TEST(OffloadManagerTest, FreedSlotsAreUsedLastFreedFirst) {
  OffloadManager manager(EvictionPolicy::kLru, 3);
  StoreAll(manager, Keys({1, 2}));
  EXPECT_THAT(manager.PrepareStore(Keys({3, 4, 5}))->slots, ElementsAre(2U, 1U, 0U));
}

TEST(OffloadManagerTest, AStoreCompletesOnce) {
  OffloadManager manager(EvictionPolicy::kLru, 3);
  manager.PrepareStore(Keys({1, 2}));
  EXPECT_THAT(manager.CompleteStore(Keys({1, 9})), ElementsAre(Key(1)));
  EXPECT_THAT(manager.CompleteStore(Keys({1})), IsEmpty());
  EXPECT_THAT(manager.PrepareStore(Keys({1, 2}))->keys, IsEmpty());
}

// |T1| is below its target and T2 has nothing: refused, although T1 has candidates (3.28).
TEST(ArcOffloadPolicyTest, RefusesWhenRecentIsBelowItsTarget) {
  ArcOffloadPolicy policy(2);
  const absl::flat_hash_set<BlockHash> none;
  for (std::uint64_t key = 1; key <= 2; ++key) policy.Insert(Key(key), {.id = 0, .references = 0});
  ASSERT_TRUE(policy.Evict(1, none).has_value());  // 1 becomes a ghost
  policy.Touch(Keys({1}));                         // and is missed twice: the target grows to 2
  policy.Touch(Keys({1}));
  EXPECT_EQ(policy.recent_target(), 2);
  EXPECT_FALSE(policy.Evict(1, none).has_value());
}

// ARC as the rule says it, on lists of numbers; oldest first.
struct NaiveArc {
  std::size_t capacity = 0;
  double target = 0;
  std::vector<std::uint64_t> t1, t2, b1, b2;
  std::map<std::uint64_t, std::int32_t> references;

  static bool Has(const std::vector<std::uint64_t>& list, std::uint64_t key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  }
  static void Drop(std::vector<std::uint64_t>& list, std::uint64_t key) { std::erase(list, key); }

  void Insert(std::uint64_t key, std::int32_t held) {
    t1.push_back(key);
    references[key] = held;
    Drop(b1, key);
    Drop(b2, key);
  }
  void Touch(const std::vector<std::uint64_t>& keys) {
    for (std::size_t i = keys.size(); i-- > 0;) {
      const std::uint64_t key = keys[i];
      const auto ratio = [](const auto& a, const auto& b) {
        return std::max(1.0, static_cast<double>(a.size()) / static_cast<double>(b.size()));
      };
      if (Has(t1, key)) {
        Drop(t1, key);
        (references[key] >= 0 ? t2 : t1).push_back(key);
      } else if (Has(t2, key)) {
        Drop(t2, key);
        t2.push_back(key);
      } else if (Has(b1, key)) {
        target = std::min(target + ratio(b2, b1), static_cast<double>(capacity));
        Drop(b1, key);
        b1.push_back(key);
      } else if (Has(b2, key)) {
        target = std::max(target - ratio(b1, b2), 0.0);
        Drop(b2, key);
        b2.push_back(key);
      }
    }
  }
  std::optional<std::vector<std::uint64_t>> Evict(std::size_t count, std::uint64_t kept) {
    std::vector<std::uint64_t> victims;
    std::vector<bool> from_t1;
    std::size_t left = t1.size();
    while (victims.size() < count) {
      std::optional<std::uint64_t> victim;
      const auto look = [&](const std::vector<std::uint64_t>& list) {
        for (const std::uint64_t key : list) {
          if (references[key] == 0 && key != kept && !Has(victims, key)) return std::optional(key);
        }
        return std::optional<std::uint64_t>();
      };
      if (left >= static_cast<std::size_t>(target)) victim = look(t1);
      from_t1.push_back(victim.has_value());
      if (victim) --left;
      if (!victim) victim = look(t2);
      if (!victim) return std::nullopt;
      victims.push_back(*victim);
    }
    for (std::size_t i = 0; i < victims.size(); ++i) {
      Drop(from_t1[i] ? t1 : t2, victims[i]);
      (from_t1[i] ? b1 : b2).push_back(victims[i]);
    }
    for (std::vector<std::uint64_t>* ghosts : {&b1, &b2}) {
      while (ghosts->size() > capacity) ghosts->erase(ghosts->begin());
    }
    return victims;
  }
};

RC_GTEST_PROP(ArcOffloadPolicyProperty, BehavesAsTheRuleOnLists, ()) {
  const auto capacity = *rc::gen::inRange<std::size_t>(1, 8);
  ArcOffloadPolicy policy(capacity);
  NaiveArc model{.capacity = capacity};
  const int operations = *rc::gen::inRange(0, 200);
  for (int i = 0; i < operations; ++i) {
    const auto key = *rc::gen::inRange<std::uint64_t>(1, 14);
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        if (policy.Find(Key(key)) == nullptr && policy.size() < capacity) {
          const std::int32_t held = *rc::gen::element(0, 0, 0, OffloadSlot::kNotReady);
          policy.Insert(Key(key), {.id = 0, .references = held});
          model.Insert(key, held);
        }
        break;
      case 1: {
        const auto keys = *rc::gen::container<std::vector<std::uint64_t>>(
            3, rc::gen::inRange<std::uint64_t>(1, 14));
        std::vector<BlockHash> hashes;
        for (const std::uint64_t touched : keys) hashes.push_back(Key(touched));
        policy.Touch(hashes);
        model.Touch(keys);
        break;
      }
      case 2: {
        const auto count = *rc::gen::inRange<std::size_t>(1, 4);
        const auto evicted = policy.Evict(count, {Key(key)});
        const auto expected = model.Evict(count, key);
        RC_ASSERT(evicted.has_value() == expected.has_value());
        for (std::size_t v = 0; evicted && v < evicted->size(); ++v)
          RC_ASSERT((*evicted)[v].first == Key((*expected)[v]));
        break;
      }
      default: {
        // A load begins or ends, a store ends.
        OffloadSlot* slot = policy.Find(Key(key));
        RC_ASSERT((slot != nullptr) ==
                  (NaiveArc::Has(model.t1, key) || NaiveArc::Has(model.t2, key)));
        if (slot == nullptr) break;
        slot->references = *rc::gen::element(0, 0, 1);
        model.references[key] = slot->references;
      }
    }
    RC_ASSERT(policy.recent_target() == model.target);
    RC_ASSERT(policy.size() == model.t1.size() + model.t2.size());
  }
}

}  // namespace
}  // namespace tally
