// All requests that the scheduler knows, in a slab: a handle is a place in it, stable while the
// request lives.
#ifndef TALLY_ENGINE_CORE_REQUEST_TABLE_H_
#define TALLY_ENGINE_CORE_REQUEST_TABLE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/core/request.h"

namespace tally {

class RequestTable {
 public:
  RequestState& state(RequestHandle request) { return states_[Index(request)]; }
  const RequestState& state(RequestHandle request) const { return states_[Index(request)]; }
  Request& request(RequestHandle request) { return requests_[Index(request)]; }
  const Request& request(RequestHandle request) const { return requests_[Index(request)]; }

  // A fresh place, known by `id`, which must be unknown. Amortised O(1); invalidates references to
  // states.
  RequestHandle Insert(std::string_view id);
  // A place that stands for `request` once more in a queue, which holds a request just once: only
  // faults of the reference put one there twice (BUG-5). Ordered as the request is now.
  RequestHandle InsertEcho(RequestHandle request);
  // The request that a queue's entry stands for.
  RequestHandle Resolve(RequestHandle entry) const {
    const RequestHandle original = requests_[Index(entry)].echo_of;
    return original == kNoRequest ? entry : original;
  }
  // Nothing for an id that is unknown or forgotten. O(1).
  std::optional<RequestHandle> Find(std::string_view id) const;
  // The id is unknown from now on, the place stays readable until Recycle. O(1).
  void Forget(RequestHandle request);
  // Gives the place, whose id was forgotten, to the next Insert.
  void Recycle(RequestHandle request);

  // Requests with a known id.
  std::size_t size() const { return by_id_.size(); }
  // Handles handed out so far are below this.
  std::size_t num_handles() const { return states_.size(); }
  // Known requests in the order in which they were inserted. O(n log n).
  std::vector<RequestHandle> InOrder() const;

 private:
  std::vector<RequestState> states_;
  std::deque<Request> requests_;  // a deque: growing moves nothing
  std::vector<RequestHandle> free_;
  absl::flat_hash_map<std::string_view, RequestHandle> by_id_;  // views of the requests' own ids
  std::uint64_t next_sequence_ = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_REQUEST_TABLE_H_
