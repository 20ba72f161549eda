// The workers' side of a KV connector: moves the bytes that the scheduler's side decided on
// (connectors.md 1.1, 1.2).
//
// One step of a worker, in this order (1.2.2):
//
//   connector.HandlePreemptions(metadata);   // before any block may be overwritten
//   connector.StartLoadKv(metadata);
//   ... the forward pass ...
//   connector.WaitForSave(metadata);         // also when nothing was computed
//   FinishedTransfers done = connector.GetFinished(plan's finished requests);
//
// Calls come from one thread, the model's. Threads of its own are the connector's affair; what they
// finish is told by GetFinished only. Every transfer that was started ends exactly once, with
// success or failure.
#ifndef TALLY_ENGINE_CONNECTOR_KV_CONNECTOR_WORKER_H_
#define TALLY_ENGINE_CONNECTOR_KV_CONNECTOR_WORKER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/types.h"
#include "engine/core/kv_connector.h"
#include "kernels/device/device.h"

namespace tally {

// What a worker tells the scheduler with one step; see StepOutcome.
struct FinishedTransfers {
  std::vector<std::string> finished_sending;
  std::vector<std::string> finished_recving;
  std::vector<BlockId> invalid_blocks;  // that a load could not fill
};

// What a connector moved since it began: all only grow, `queued` apart.
struct TransferCounters {
  struct Direction {
    std::int64_t transfers = 0;
    std::int64_t bytes = 0;
    double seconds = 0;
    std::int64_t failures = 0;
    std::int64_t queued = 0;  // under way now
  };
  // By direction: "load", "store", "send", "receive".
  std::map<std::string, Direction> directions;
};

class KvConnectorWorker {
 public:
  virtual ~KvConnectorWorker() = default;

  // Once, before all else: the memory of the KV blocks; block i of the scheduler's pool is block i
  // of the arena. `compute` is the stream of the forward pass. All outlive the connector.
  virtual absl::Status RegisterKvCaches(Device& device, KvArena& arena, DeviceStream& compute) = 0;

  virtual void HandlePreemptions(const ConnectorMetadata& /*metadata*/) {}
  virtual void StartLoadKv(const ConnectorMetadata& metadata) = 0;
  virtual void WaitForSave(const ConnectorMetadata& /*metadata*/) {}
  // `finished_requests`: ended since the last step. Does not block.
  virtual FinishedTransfers GetFinished(std::span<const std::string> finished_requests) = 0;

  // What peers need to reach this worker; empty for none.
  virtual std::string HandshakeMetadata() { return ""; }
  virtual TransferCounters counters() const { return {}; }

  // Ends all transfers and threads; after it nothing is called any more. Twice is fine.
  virtual void Shutdown() = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_KV_CONNECTOR_WORKER_H_
