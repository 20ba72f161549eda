// Random requests on a ConnectorTestDriver: prompts with shared beginnings, lengths around
// multiples of the block size, aborts in every state, tiny pools that preempt, resets of the prefix
// cache. Asserts what holds for every connector: no violation of the driver, every request ends,
// every block comes back.
#ifndef TALLY_ENGINE_CONNECTOR_RANDOM_ENGINE_H_
#define TALLY_ENGINE_CONNECTOR_RANDOM_ENGINE_H_

#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/connector/connector_test_driver.h"

namespace tally {

class RandomEngine {
 public:
  explicit RandomEngine(ConnectorTestDriver& driver) : driver_(driver) {}

  // Blocks of 4 tokens.
  static EngineConfig SmallConfig(std::uint32_t num_blocks) {
    EngineConfig config;
    config.kv.block_size = 4;
    config.kv.num_blocks = num_blocks;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = 16;
    config.max_model_len = 128;
    return config;
  }
  static EngineConfig ArbitraryConfig() {
    EngineConfig config = SmallConfig(*rc::gen::inRange<std::uint32_t>(12, 30));
    config.max_num_seqs = *rc::gen::element(2, 4, 8);
    config.max_num_batched_tokens = *rc::gen::element(8, 16, 64);
    config.max_model_len = 40;
    config.scheduler_reserve_full_isl = *rc::gen::arbitrary<bool>();
    config.kv.enable_prefix_caching = *rc::gen::weightedElement<bool>({{4, true}, {1, false}});
    config.load_failure_policy = *rc::gen::weightedElement<LoadFailurePolicy>(
        {{4, LoadFailurePolicy::kRecompute}, {1, LoadFailurePolicy::kFail}});
    return config;
  }

  void Command() {
    switch (*rc::gen::weightedElement<int>({{4, 0}, {10, 1}, {1, 2}, {2, 3}})) {
      case 0:
        Add();
        break;
      case 1:
        driver_.Step();
        break;
      case 2:
        if (!ids_.empty()) driver_.Abort(*rc::gen::elementOf(ids_));
        break;
      default:
        // Refused while a block is in use.
        RC_ASSERT(driver_.scheduler().ResetPrefixCache(false, 0).ok());
    }
  }
  void RunAndDrain() {
    const int commands = *rc::gen::inRange(0, 80);
    for (int i = 0; i < commands; ++i) Command();
    Drain();
  }
  void Drain() {
    bool drained = driver_.Drain();
    if (!drained && WaitForEachOther()) {
      // Requests hold the blocks of their loaded prefixes and wait for each other's; nothing runs
      // that could be preempted. Their clients give up.
      for (const std::string& id : ids_) driver_.Abort(id);
      drained = driver_.Drain();
    }
    const std::vector<std::string> violations = driver_.violations();
    for (const std::string& violation : violations) RC_LOG() << violation << "\n";
    RC_ASSERT(violations.empty());
    if (!drained) LogRequests();
    RC_ASSERT(drained);
    RC_ASSERT(driver_.PoolIsWhole());
    for (const auto& [id, client] : driver_.clients()) RC_ASSERT(client.ended());
  }

 private:
  bool WaitForEachOther() {
    const Scheduler& scheduler = driver_.scheduler();
    const std::vector<RequestHandle> known = scheduler.KnownRequests();
    return scheduler.running().empty() &&
           std::any_of(known.begin(), known.end(), [&](RequestHandle request) {
             return scheduler.state(request).load_finished ||
                    scheduler.state(request).num_computed_tokens > 0;
           });
  }
  void LogRequests() {
    const Scheduler& scheduler = driver_.scheduler();
    for (const RequestHandle request : scheduler.KnownRequests()) {
      const RequestState& state = scheduler.state(request);
      RC_LOG() << scheduler.id(request) << " " << StatusName(state.status) << ", "
               << state.num_computed_tokens << " of " << state.num_tokens << " computed, holds "
               << scheduler.kv().Table(request, 0).size() << " blocks, "
               << scheduler.kv().num_free_blocks() << " free\n";
    }
  }
  void Add() {
    const std::string id = absl::StrCat("r", ids_.size());
    std::vector<TokenId> prompt(*rc::gen::inRange<std::size_t>(1, 36), *rc::gen::inRange(1, 3));
    if (*rc::gen::inRange(0, 3) == 0) prompt[prompt.size() / 2] = *rc::gen::inRange(1, 4);
    if (*rc::gen::arbitrary<bool>()) prompt.resize((prompt.size() + 3) / 4 * 4, prompt.back());
    if (driver_.Add(id, prompt, *rc::gen::inRange(1, 20)).ok()) ids_.push_back(id);
  }

  ConnectorTestDriver& driver_;
  std::vector<std::string> ids_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_RANDOM_ENGINE_H_
