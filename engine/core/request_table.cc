#include "engine/core/request_table.h"

#include <algorithm>

#include "engine/base/check.h"

namespace tally {

RequestHandle RequestTable::Insert(std::string_view id) {
  RequestHandle handle{static_cast<std::uint32_t>(states_.size())};
  if (free_.empty()) {
    states_.emplace_back();
    requests_.emplace_back();
  } else {
    handle = free_.back();
    free_.pop_back();
    states_[Index(handle)] = RequestState{};
  }
  Request& added = request(handle);
  added.id.assign(id);
  added.sequence = next_sequence_++;
  const bool inserted = by_id_.emplace(added.id, handle).second;
  TALLY_CHECK(inserted, "request %s is known already", added.id.c_str());
  return handle;
}

RequestHandle RequestTable::InsertEcho(RequestHandle request) {
  const RequestHandle echo{static_cast<std::uint32_t>(states_.size())};
  states_.emplace_back();
  Request& place = requests_.emplace_back();
  const Request& original = requests_[Index(request)];
  place.id = original.id;
  place.priority = original.priority;
  place.arrival_time = original.arrival_time;
  place.sequence = original.sequence;
  place.echo_of = request;
  return echo;
}

std::optional<RequestHandle> RequestTable::Find(std::string_view id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return found->second;
}

void RequestTable::Forget(RequestHandle handle) {
  const auto found = by_id_.find(request(handle).id);
  TALLY_CHECK(found != by_id_.end() && found->second == handle, "request %u is forgotten already",
              Index(handle));
  by_id_.erase(found);
}

void RequestTable::Recycle(RequestHandle handle) { free_.push_back(handle); }

std::vector<RequestHandle> RequestTable::InOrder() const {
  std::vector<RequestHandle> handles;
  handles.reserve(by_id_.size());
  for (const auto& [id, handle] : by_id_) handles.push_back(handle);
  std::sort(handles.begin(), handles.end(), [this](RequestHandle a, RequestHandle b) {
    return request(a).sequence < request(b).sequence;
  });
  return handles;
}

}  // namespace tally
