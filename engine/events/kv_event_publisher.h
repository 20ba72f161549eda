// Publishes KV events over ZeroMQ, as vLLM does, for routers that follow the caches of many engines
// (kv_cache.md EVT-7).
//
// A batch is three frames on a PUB socket: topic, sequence number (8 bytes, big-endian, from 0) and
// the msgpack payload of kv_event_encoding.h. A subscriber that misses numbers asks the replay
// endpoint (a ROUTER socket) with the first one it wants, 8 bytes big-endian, and gets every batch
// from there on that is still buffered, [number, payload] each, then the end marker: number -1 with
// an empty payload.
//
// The engine never waits: Publish hands the batch to a thread of the publisher; when that is behind
// by max_queue batches, a batch is dropped and counted, and its number is missing on the wire, so
// that subscribers know. A subscriber that does not read is dropped from by ZeroMQ when
// high_water_mark batches wait for it.
#ifndef TALLY_ENGINE_EVENTS_KV_EVENT_PUBLISHER_H_
#define TALLY_ENGINE_EVENTS_KV_EVENT_PUBLISHER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/events/kv_event_encoding.h"

namespace tally {

class KvEventPublisher {
 public:
  struct Options {
    std::string endpoint;         // to bind, "tcp://127.0.0.1:5557"; port * takes a free one
    std::string replay_endpoint;  // to bind; empty: no replay
    std::string topic;
    std::int32_t data_parallel_rank = 0;  // added to the ports
    std::size_t buffered_batches = 10'000;
    std::size_t max_queue = 100'000;
    int high_water_mark = 100'000;
    WireHash hash = WireHash::kInteger;
  };
  // InvalidArgument or Unavailable with the endpoint that cannot be bound.
  static absl::StatusOr<std::unique_ptr<KvEventPublisher>> Create(Options options);
  // Sends what is queued, for a second at most.
  ~KvEventPublisher();
  KvEventPublisher(const KvEventPublisher&) = delete;
  KvEventPublisher& operator=(const KvEventPublisher&) = delete;

  // Never blocks; `time` in seconds since 1970. No batch is made of no events.
  void Publish(Seconds time, std::span<const KvEvent> events);

  // As bound.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }
  std::uint64_t num_published() const { return num_published_.load(std::memory_order_relaxed); }
  std::uint64_t num_dropped() const { return num_dropped_.load(std::memory_order_relaxed); }

 private:
  struct Batch {
    std::uint64_t number = 0;
    Seconds time = 0;
    std::vector<KvEvent> events;
  };
  struct Sent {
    std::uint64_t number = 0;
    std::string payload;
  };

  explicit KvEventPublisher(Options options) : options_(std::move(options)) {}
  absl::Status Open();
  absl::Status Bind(int type, std::string endpoint, int high_water_mark, void*& socket,
                    std::string& bound);
  void Run();
  void Send(Batch batch);
  void AnswerReplays();

  const Options options_;
  std::string endpoint_;
  std::string replay_endpoint_;
  void* context_ = nullptr;
  void* publish_socket_ = nullptr;
  void* replay_socket_ = nullptr;
  std::deque<Sent> sent_;  // the thread's

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Batch> queue_;
  std::uint64_t next_number_ = 0;
  bool stopping_ = false;
  std::atomic<std::uint64_t> num_published_{0};
  std::atomic<std::uint64_t> num_dropped_{0};
  std::thread thread_;
};

// The endpoint of a data parallel rank: its port plus the rank, or an inproc name with "_dp<rank>".
// InvalidArgument for one without a port.
absl::StatusOr<std::string> EndpointOfRank(const std::string& endpoint, std::int32_t rank);

}  // namespace tally

#endif  // TALLY_ENGINE_EVENTS_KV_EVENT_PUBLISHER_H_
