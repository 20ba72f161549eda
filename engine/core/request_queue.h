// A queue of requests that wait: first come, first served, or by priority (scheduler.md section 2).
//
// First come, first served is a list threaded through the requests themselves, so that an abort
// takes a request out of the middle in O(1), whatever waits beside it. Priority is a binary heap by
// (priority, arrival time, id); its operations are those of upstream's heap, since a session may
// change its arrival time while it is queued, and the order then depends on the heap's shape.
//
// A request is in at most one queue at a time.
#ifndef TALLY_ENGINE_CORE_REQUEST_QUEUE_H_
#define TALLY_ENGINE_CORE_REQUEST_QUEUE_H_

#include <cstddef>
#include <vector>

#include "engine/base/types.h"
#include "engine/core/engine_config.h"
#include "engine/core/request_table.h"

namespace tally {

class RequestQueue {
 public:
  // `requests` outlives the queue.
  RequestQueue(QueueName name, SchedulingPolicy policy, RequestTable& requests)
      : name_(name), policy_(policy), requests_(requests) {}
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // The request that is served next. Wants a queue that is not empty.
  RequestHandle Front() const { return policy_ == SchedulingPolicy::kFcfs ? head_ : heap_.front(); }

  // At the back, or in its place by priority.
  void Add(RequestHandle request);
  // At the front, or in its place by priority.
  void Prepend(RequestHandle request);
  void PopFront();
  // Prepends the requests of `other` one after the other, so that under FCFS they end up reversed
  // empties `other`.
  void PrependAll(RequestQueue& other);
  bool Contains(RequestHandle request) const { return requests_.request(request).queue == name_; }
  // Takes a request that is in the queue out. O(1) under FCFS, O(size) by priority.
  void Remove(RequestHandle request);

  // Puts the heap in order again, after keys may have changed. O(size) by priority, nothing under
  // FCFS.
  void RestoreOrder();

  // The requests in the order in which they would be served. O(size), O(size log size) by priority.
  std::vector<RequestHandle> Order() const;

  // Whether `a` is served before `b` by priority (REQ-11).
  static bool Before(const RequestTable& requests, RequestHandle a, RequestHandle b);

 private:
  bool Less(RequestHandle a, RequestHandle b) const { return Before(requests_, a, b); }
  void SiftTowardsRoot(std::vector<RequestHandle>& heap, std::size_t start,
                       std::size_t place) const;
  void SiftFromRoot(std::vector<RequestHandle>& heap, std::size_t place) const;
  void PopHeap(std::vector<RequestHandle>& heap) const;

  const QueueName name_;
  const SchedulingPolicy policy_;
  RequestTable& requests_;
  std::size_t size_ = 0;
  RequestHandle head_ = kNoRequest;
  RequestHandle tail_ = kNoRequest;
  std::vector<RequestHandle> heap_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_REQUEST_QUEUE_H_
