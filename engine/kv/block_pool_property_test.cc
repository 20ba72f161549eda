// PrefixIndex and BlockPool against models of a few lines, over random sequences of operations.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <list>
#include <map>

#include "engine/kv/block_pool.h"
#include "engine/kv/prefix_index.h"

namespace tally {
namespace {

// Few keys, so that several blocks share one; their bits collide in the table's home slots too.
BlockHash SmallKey(int number) {
  return {static_cast<std::uint64_t>(number) % 3, static_cast<std::uint64_t>(number) / 3};
}

RC_GTEST_PROP(PrefixIndexProperty, AgreesWithAMapOfLists, ()) {
  const auto num_blocks = *rc::gen::inRange<std::uint32_t>(2, 40);
  PrefixIndex index(num_blocks);
  std::map<int, std::list<std::uint32_t>> model;
  std::map<std::uint32_t, int> key_of;
  const auto steps = *rc::gen::inRange(0, 200);
  for (int step = 0; step < steps; ++step) {
    const auto block = *rc::gen::inRange<std::uint32_t>(1, num_blocks);
    const auto key = *rc::gen::inRange(0, 12);
    if (key_of.contains(block)) {
      RC_ASSERT(index.Remove(BlockId{block}));
      model[key_of[block]].remove(block);
      key_of.erase(block);
    } else {
      RC_ASSERT(!index.Remove(BlockId{block}));
      index.Insert(SmallKey(key), BlockId{block});
      model[key].push_back(block);
      key_of[block] = key;
    }
    index.CheckInvariants();
    for (int k = 0; k < 12; ++k) {
      const std::optional<BlockId> found = index.Find(SmallKey(k));
      RC_ASSERT(found.has_value() == !model[k].empty());
      if (found) RC_ASSERT(Index(*found) == model[k].front());  // the oldest
    }
    RC_ASSERT(index.size() == key_of.size());
  }
  index.Clear();
  index.CheckInvariants();
  RC_ASSERT(index.size() == 0U);
}

// kv_cache.md section 1 in a few lines: the free queue as a list.
struct PoolModel {
  explicit PoolModel(std::uint32_t num_blocks) : references(num_blocks, 0) {
    for (std::uint32_t id = 1; id < num_blocks; ++id) free.push_back(id);
  }
  void Release(std::uint32_t id) {
    if (--references[id] == 0) free.push_back(id);
  }
  void Hold(std::uint32_t id) {
    if (references[id]++ == 0) free.remove(id);
  }
  std::list<std::uint32_t> free;
  std::vector<int> references;
  std::map<std::uint32_t, int> cached;
};

RC_GTEST_PROP(BlockPoolProperty, AgreesWithAListOfFreeBlocks, ()) {
  const auto num_blocks = *rc::gen::inRange<std::uint32_t>(1, 24);
  BlockPool pool(num_blocks, true);
  PoolModel model(num_blocks);
  std::vector<std::vector<BlockId>> tables;
  int next_key = 0;
  const auto steps = *rc::gen::inRange(0, 120);
  for (int step = 0; step < steps; ++step) {
    switch (*rc::gen::inRange(0, 5)) {
      case 0: {  // allocate
        std::vector<BlockId> table(*rc::gen::inRange<std::size_t>(0, pool.num_free() + 1U));
        pool.Allocate(table);
        for (BlockId block : table) {
          RC_ASSERT(Index(block) == model.free.front());
          model.Hold(Index(block));
          model.cached.erase(Index(block));
        }
        tables.push_back(table);
        break;
      }
      case 1: {  // free a table, tail first
        if (tables.empty()) break;
        const auto i = *rc::gen::inRange<std::size_t>(0, tables.size());
        pool.FreeTailFirst(tables[i]);
        for (auto block = tables[i].rbegin(); block != tables[i].rend(); ++block)
          model.Release(Index(*block));
        tables.erase(tables.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
      case 2: {  // cache what is held
        for (const auto& table : tables) {
          for (BlockId block : table) {
            if (pool.IsCached(block) || !*rc::gen::arbitrary<bool>()) continue;
            pool.Register({static_cast<std::uint64_t>(++next_key), 0}, block);
            model.cached[Index(block)] = next_key;
          }
        }
        break;
      }
      case 3: {  // a hit: revive cached blocks
        std::vector<BlockId> hits;
        for (const auto& [id, key] : model.cached) {
          const std::optional<BlockId> found =
              pool.FindCached({static_cast<std::uint64_t>(key), 0});
          RC_ASSERT(found == BlockId{id});
          if (*rc::gen::arbitrary<bool>()) hits.push_back(*found);
        }
        pool.Touch(hits);
        for (BlockId block : hits) model.Hold(Index(block));
        tables.push_back(hits);
        break;
      }
      default: {  // evict or reset
        if (*rc::gen::arbitrary<bool>() && num_blocks > 1) {
          const auto id = *rc::gen::inRange<std::uint32_t>(1, num_blocks);
          RC_ASSERT(pool.Evict(BlockId{id}) == (model.cached.erase(id) > 0));
        } else {
          const bool idle = model.free.size() + 1 == num_blocks;
          RC_ASSERT(pool.ResetPrefixCache() == idle);
          if (idle) model.cached.clear();
        }
      }
    }
    pool.CheckInvariants();
    std::vector<std::uint32_t> queue;
    for (BlockId block : pool.FreeQueue()) queue.push_back(Index(block));
    RC_ASSERT(queue == std::vector<std::uint32_t>(model.free.begin(), model.free.end()));
    RC_ASSERT(pool.num_cached() == model.cached.size());
  }
}

}  // namespace
}  // namespace tally
