// Which requests of each adapter wait and which run, as the front end sees it (metrics.md 2.4).
#ifndef TALLY_ENGINE_ACCOUNTING_LORA_STATES_H_
#define TALLY_ENGINE_ACCOUNTING_LORA_STATES_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/types.h"

namespace tally {

class LoraStates {
 public:
  enum class State : std::uint8_t { kWaiting, kRunning, kGone };

  // Requests without adapter (an empty name) are passed over. O(adapters and requests of this one).
  void Set(std::string_view name, RequestHandle request, State state) {
    if (name.empty()) return;
    auto adapter = std::find_if(adapters_.begin(), adapters_.end(),
                                [name](const Adapter& known) { return known.name == name; });
    if (adapter == adapters_.end()) {
      adapter = adapters_.insert(adapters_.end(), Adapter{std::string(name), {}, {}});
    }
    std::erase(adapter->waiting, request);
    std::erase(adapter->running, request);
    if (state == State::kWaiting) adapter->waiting.push_back(request);
    if (state == State::kRunning) adapter->running.push_back(request);
    if (adapter->waiting.empty() && adapter->running.empty()) adapters_.erase(adapter);
  }

  // The names of the adapters in use, joined by commas, in the order in which they came into use
  // (LORA-3).
  std::string Names() const {
    std::string names;
    for (const Adapter& adapter : adapters_) {
      if (!names.empty()) names += ',';
      names += adapter.name;
    }
    return names;
  }

 private:
  struct Adapter {
    std::string name;
    std::vector<RequestHandle> waiting;
    std::vector<RequestHandle> running;
  };

  std::vector<Adapter> adapters_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_ACCOUNTING_LORA_STATES_H_
