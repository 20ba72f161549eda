// The workers' side of offloading to host memory: copies GPU blocks to and from a pinned arena as
// OffloadingConnector says (connectors.md 3.16 to 3.22).
//
// Loads and stores have a stream each, and within a direction jobs run in order. A store is queued
// in WaitForSave and submitted at the start of the next step, so that the copy does not delay the
// sampling; it runs after the forward pass that computed its blocks. A load runs after the forward
// passes that were queued before it: they may still use the blocks for the request that had them
// before.
//
// Failures: a load that failed is reported with all its blocks invalid. A store that failed is
// reported as ended, and its slots are remembered: loads of them fail until they are stored again.
// So the scheduler's side needs to know nothing, and no wrong byte is ever loaded.
#ifndef TALLY_ENGINE_CONNECTOR_HOST_OFFLOAD_WORKER_H_
#define TALLY_ENGINE_CONNECTOR_HOST_OFFLOAD_WORKER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/connector/kv_connector_worker.h"
#include "engine/connector/offloading_connector.h"

namespace tally {

class HostOffloadWorker final : public KvConnectorWorker {
 public:
  struct Options {
    std::uint32_t num_slots = 0;        // OffloadingConnector::Options::num_cpu_blocks
    std::uint32_t blocks_per_slot = 1;  // GPU blocks of an offloaded block
  };
  explicit HostOffloadWorker(const Options& options) : options_(options) {}
  ~HostOffloadWorker() override { Shutdown(); }

  absl::Status RegisterKvCaches(Device& device, KvArena& arena, DeviceStream& compute) override;
  void HandlePreemptions(const ConnectorMetadata& metadata) override;
  void StartLoadKv(const ConnectorMetadata& metadata) override;
  void WaitForSave(const ConnectorMetadata& metadata) override;
  FinishedTransfers GetFinished(std::span<const std::string> finished_requests) override;
  TransferCounters counters() const override;
  void Shutdown() override;

  // Copies that were submitted so far: several blocks that lie together on both sides are one.
  std::int64_t num_copies() const { return num_copies_; }

 private:
  using Transfer = OffloadingMetadata::Transfer;
  struct Job {
    Transfer transfer;
    std::shared_ptr<DeviceEvent> event;  // null: it could not be submitted
    std::chrono::steady_clock::time_point submitted;
  };
  struct Queue {
    std::unique_ptr<DeviceStream> stream;
    std::deque<Job> jobs;
    TransferCounters::Direction counters;
  };
  struct QueuedStore {
    Transfer transfer;
    std::shared_ptr<DeviceEvent> computed;  // null: it could not be recorded
  };

  void Submit(Queue& queue, bool load, Transfer transfer,
              const std::shared_ptr<DeviceEvent>& computed);
  absl::Status Copy(Queue& queue, bool load, const Transfer& transfer,
                    const std::shared_ptr<DeviceEvent>& computed, Job& job);
  std::vector<BlockCopy> Copies(bool load, const Transfer& transfer) const;
  void SubmitQueuedStores();
  bool ReadsBadSlot(const Transfer& transfer) const;
  // Takes jobs that ended off the queue, up to the first that did not.
  template <typename Ended>
  void TakeEnded(Queue& queue, const Ended& ended);
  std::shared_ptr<DeviceEvent> RecordCompute();

  const Options options_;
  KvArena* gpu_ = nullptr;
  DeviceStream* compute_ = nullptr;
  std::unique_ptr<KvArena> host_;
  Queue loads_;
  Queue stores_;
  std::vector<QueuedStore> queued_stores_;
  // By request that ever stored something: its stores that did not end yet.
  absl::flat_hash_map<std::string, std::int64_t> pending_stores_;
  absl::flat_hash_set<std::string> finished_with_pending_stores_;
  absl::flat_hash_set<std::uint32_t> bad_slots_;  // that hold no bytes one could load
  std::int64_t num_copies_ = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_HOST_OFFLOAD_WORKER_H_
