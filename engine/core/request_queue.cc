#include "engine/core/request_queue.h"

#include <algorithm>

#include "engine/base/check.h"

namespace tally {

bool RequestQueue::Before(const RequestTable& requests, RequestHandle a, RequestHandle b) {
  const Request& left = requests.request(a);
  const Request& right = requests.request(b);
  if (left.priority != right.priority) return left.priority < right.priority;
  if (left.arrival_time != right.arrival_time) return left.arrival_time < right.arrival_time;
  return left.id < right.id;  // UTF-8 bytes compare as code points do
}

void RequestQueue::Add(RequestHandle request) {
  ++size_;
  requests_.request(request).queue = name_;
  if (policy_ == SchedulingPolicy::kPriority) {
    heap_.push_back(request);
    SiftTowardsRoot(heap_, 0, heap_.size() - 1);
    return;
  }
  Request& added = requests_.request(request);
  added.queue_previous = tail_;
  added.queue_next = kNoRequest;
  (tail_ == kNoRequest ? head_ : requests_.request(tail_).queue_next) = request;
  tail_ = request;
}

void RequestQueue::Prepend(RequestHandle request) {
  if (policy_ == SchedulingPolicy::kPriority) {
    Add(request);
    return;
  }
  ++size_;
  Request& added = requests_.request(request);
  added.queue = name_;
  added.queue_previous = kNoRequest;
  added.queue_next = head_;
  (head_ == kNoRequest ? tail_ : requests_.request(head_).queue_previous) = request;
  head_ = request;
}

void RequestQueue::PopFront() {
  TALLY_CHECK(!empty(), "nothing to pop");
  if (policy_ == SchedulingPolicy::kFcfs) {
    Remove(head_);
    return;
  }
  --size_;
  requests_.request(Front()).queue = QueueName::kNone;
  PopHeap(heap_);
}

void RequestQueue::PrependAll(RequestQueue& other) {
  while (!other.empty()) {
    const RequestHandle request = other.Front();
    other.PopFront();
    Prepend(request);
  }
}

void RequestQueue::Remove(RequestHandle request) {
  TALLY_CHECK(Contains(request), "request %u is not in this queue", Index(request));
  --size_;
  requests_.request(request).queue = QueueName::kNone;
  if (policy_ == SchedulingPolicy::kPriority) {
    const auto found = std::find(heap_.begin(), heap_.end(), request);
    heap_.erase(found);
    RestoreOrder();
    return;
  }
  Request& removed = requests_.request(request);
  (removed.queue_previous == kNoRequest ? head_
                                        : requests_.request(removed.queue_previous).queue_next) =
      removed.queue_next;
  (removed.queue_next == kNoRequest ? tail_
                                    : requests_.request(removed.queue_next).queue_previous) =
      removed.queue_previous;
  removed.queue_previous = removed.queue_next = kNoRequest;
}

void RequestQueue::RestoreOrder() {
  for (std::size_t place = heap_.size() / 2; place-- > 0;) SiftFromRoot(heap_, place);
}

std::vector<RequestHandle> RequestQueue::Order() const {
  std::vector<RequestHandle> order;
  order.reserve(size_);
  if (policy_ == SchedulingPolicy::kFcfs) {
    for (RequestHandle r = head_; r != kNoRequest; r = requests_.request(r).queue_next)
      order.push_back(r);
    return order;
  }
  std::vector<RequestHandle> heap = heap_;
  while (!heap.empty()) {
    order.push_back(heap.front());
    PopHeap(heap);
  }
  return order;
}

void RequestQueue::SiftTowardsRoot(std::vector<RequestHandle>& heap, std::size_t start,
                                   std::size_t place) const {
  const RequestHandle moved = heap[place];
  while (place > start) {
    const std::size_t parent = (place - 1) / 2;
    if (!Less(moved, heap[parent])) break;
    heap[place] = heap[parent];
    place = parent;
  }
  heap[place] = moved;
}

void RequestQueue::SiftFromRoot(std::vector<RequestHandle>& heap, std::size_t place) const {
  // The smaller child moves up until a leaf is reached, then the displaced request moves up from
  // there: fewer comparisons than stopping on the way down, since what is displaced usually comes
  // from a leaf.
  const std::size_t start = place;
  const RequestHandle moved = heap[place];
  for (std::size_t child = 2 * place + 1; child < heap.size(); child = 2 * place + 1) {
    const std::size_t right = child + 1;
    if (right < heap.size() && !Less(heap[child], heap[right])) child = right;
    heap[place] = heap[child];
    place = child;
  }
  heap[place] = moved;
  SiftTowardsRoot(heap, start, place);
}

void RequestQueue::PopHeap(std::vector<RequestHandle>& heap) const {
  const RequestHandle last = heap.back();
  heap.pop_back();
  if (heap.empty()) return;
  heap.front() = last;
  SiftFromRoot(heap, 0);
}

}  // namespace tally
