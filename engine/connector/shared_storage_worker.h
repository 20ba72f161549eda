// The workers' side of a store of KV blocks that engines share: GPU block, pinned staging block,
// store.
//
// Threads read and write files from and to the staging blocks and touch nothing else; all copies
// between GPU and staging blocks are the model thread's, in batches, whenever it calls. GPU blocks
// of a store are needed until they are staged, not until the file is there.
//
// A block whose file is gone, damaged, or not read in time is reported invalid, it alone. A store
// that finds no room or a file system that refuses is dropped, as is what waits for a staging block
// when its request is preempted or too long.
#ifndef TALLY_ENGINE_CONNECTOR_SHARED_STORAGE_WORKER_H_
#define TALLY_ENGINE_CONNECTOR_SHARED_STORAGE_WORKER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/connector/block_store.h"
#include "engine/connector/io_pool.h"
#include "engine/connector/kv_connector_worker.h"
#include "engine/connector/shared_storage_connector.h"

namespace tally {

class SharedStorageWorker final : public KvConnectorWorker {
 public:
  struct Options {
    std::size_t num_threads = 2;
    std::uint32_t staging_blocks = 64;  // for loads, and as many for stores
    std::size_t blocks_per_job = 8;     // files that a thread takes at once
    std::chrono::milliseconds load_timeout{30000};
    std::chrono::milliseconds store_timeout{10000};  // to wait for a staging block
  };
  SharedStorageWorker(std::shared_ptr<const BlockStore> store, const Options& options)
      : store_(std::move(store)), options_(options), io_(options.num_threads) {}
  ~SharedStorageWorker() override { Shutdown(); }

  // InvalidArgument when the store is for blocks of another size.
  absl::Status RegisterKvCaches(Device& device, KvArena& arena, DeviceStream& compute) override;
  void HandlePreemptions(const ConnectorMetadata& metadata) override;
  void StartLoadKv(const ConnectorMetadata& metadata) override;
  void WaitForSave(const ConnectorMetadata& metadata) override;
  FinishedTransfers GetFinished(std::span<const std::string> finished_requests) override;
  TransferCounters counters() const override;
  void Shutdown() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    std::string request_id;
    Clock::time_point begun;
    std::size_t num_left = 0;    // blocks whose transfer did not end
    std::size_t num_on_gpu = 0;  // of a store: blocks that are still to be copied from
    std::int64_t num_done = 0;   // blocks that were moved
    bool failed = false;
    std::vector<BlockId> invalid;
  };
  struct Piece {
    std::shared_ptr<Job> job;
    BlockId block = kNullBlock;
    std::string key;
    std::uint32_t staging = 0;
    std::shared_ptr<DeviceEvent> computed;  // of a store
    bool abandoned = false;                 // of a load: it took too long
    absl::Status status;
  };
  using Batch = std::vector<std::shared_ptr<Piece>>;
  struct CopyBatch {
    Batch pieces;
    std::shared_ptr<DeviceEvent> event;
  };
  struct Direction {
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<KvArena> staging;
    std::vector<std::uint32_t> free;             // staging blocks
    std::deque<std::shared_ptr<Piece>> waiting;  // for a staging block
    Batch in_io;
    std::deque<CopyBatch> copies;  // in order of their events
    // What threads are done with.
    std::mutex mutex;
    Batch done;
    TransferCounters::Direction counters;
  };

  // Brings everything on as far as it goes without waiting.
  void Advance();
  void AdvanceLoads();
  void AdvanceStores();
  void GiveUpLateLoads();
  void DropWaitingStores(const absl::flat_hash_set<std::string>& requests);
  // Copies pieces that have staging blocks; those that cannot be submitted fail at once.
  void Copy(Direction& direction, bool load, Batch pieces,
            const std::shared_ptr<DeviceEvent>& computed);
  Batch TakeCopied(Direction& direction);
  void SubmitReads(Batch pieces);
  void SubmitWrites(Batch pieces);
  Batch TakeDone(Direction& direction);
  void EndLoad(const std::shared_ptr<Piece>& piece, bool ok);
  void EndStore(const std::shared_ptr<Piece>& piece, bool ok);
  void LeaveGpu(const std::shared_ptr<Piece>& piece);
  void EndJob(Direction& direction, const Job& job);

  const std::shared_ptr<const BlockStore> store_;
  const Options options_;
  KvArena* gpu_ = nullptr;
  DeviceStream* compute_ = nullptr;
  Direction loads_;
  Direction stores_;
  FinishedTransfers finished_;
  // By request that ever stored something: its blocks that stores still have to read.
  absl::flat_hash_map<std::string, std::int64_t> pending_stores_;
  absl::flat_hash_set<std::string> finished_with_pending_stores_;
  std::atomic<std::uint64_t> written_since_trim_{0};
  IoPool io_;  // the last member: its jobs use the others
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_SHARED_STORAGE_WORKER_H_
