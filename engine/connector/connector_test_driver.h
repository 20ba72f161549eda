// An engine for tests of connectors: a real scheduler and connector, a worker whose model computes
// KV as KvContent says it has to be, and the worker's side of the connector.
//
// A step is that of a worker: HandlePreemptions, StartLoadKv, the forward pass, WaitForSave,
// GetFinished, Update. The forward pass is queued on the compute stream and may run much later: it
// writes the bytes of the tokens that are computed, then looks at all KV that attention would read,
// and notes what is wrong. So a copy that is missing, late, from or to the wrong place ends up in
// `violations`, and so does what breaks a rule of the transfers (connectors.md 7.6):
//   - a block is computed into while a transfer reads or writes it (virtual devices only),
//   - a report of an ended transfer that nobody waits for,
//   - a request that gets an output after its end.
// The scheduler's invariants are checked after every call. Steps are synchronous: no
// async_scheduling. One KV cache group.
#ifndef TALLY_ENGINE_CONNECTOR_CONNECTOR_TEST_DRIVER_H_
#define TALLY_ENGINE_CONNECTOR_CONNECTOR_TEST_DRIVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/connector/kv_connector_worker.h"
#include "engine/connector/kv_content.h"
#include "engine/core/scheduler.h"
#include "kernels/device/device.h"

namespace tally {

class ConnectorTestDriver {
 public:
  struct Options {
    std::int32_t num_layers = 2;
    // The next token of a request; by default a function of the tokens before it, so that equal
    // prompts go on equally.
    std::function<TokenId(const Request&)> sample;
    // What time it is; by default a second passes with each call that needs one.
    std::function<Seconds()> clock;
  };

  // What a client saw of its request.
  struct Client {
    std::int32_t num_prompt_tokens = 0;
    std::vector<TokenId> tokens;
    std::optional<PrefillStats> prefill;
    FinishReason finish = FinishReason::kNone;  // kAbort after Abort
    std::shared_ptr<const nlohmann::json> kv_transfer_params;
    bool ended() const { return finish != FinishReason::kNone; }
  };

  // `device` outlives the driver. Both sides of the connector may be null for an engine without.
  ConnectorTestDriver(const EngineConfig& config, std::unique_ptr<KvConnector> connector,
                      std::unique_ptr<KvConnectorWorker> worker, Device& device, Options options);
  ConnectorTestDriver(const EngineConfig& config, std::unique_ptr<KvConnector> connector,
                      std::unique_ptr<KvConnectorWorker> worker, Device& device)
      : ConnectorTestDriver(config, std::move(connector), std::move(worker), device, Options()) {}
  // Shuts the worker down, whatever is under way.
  ~ConnectorTestDriver();

  absl::Status Add(const std::string& id, std::vector<TokenId> prompt, std::int32_t max_tokens,
                   std::shared_ptr<const nlohmann::json> kv_transfer_params = nullptr);
  // False for a request that is unknown or ended.
  bool Abort(const std::string& id);
  // Schedule, the worker's step, Update. Answers how many tokens were computed.
  std::int32_t Step();
  // Steps until no request and no delayed block is left; false when that takes longer than
  // `seconds`. Waits a little in steps that compute nothing, for threads.
  bool Drain(double seconds = 30);
  // Steps until a request ended, and so on.
  bool RunUntil(const std::function<bool()>& done, double seconds = 30);
  bool RunUntilEnded(const std::string& id) {
    return RunUntil([&] { return clients_.at(id).ended(); });
  }
  void ShutdownWorker();

  // No request is known: also none that ended and whose blocks are kept.
  bool Idle() const { return scheduler_->KnownRequests().empty(); }
  // All blocks but the null block are free.
  bool PoolIsWhole() const {
    return scheduler_->kv().num_free_blocks() == scheduler_->kv().pool().num_blocks() - 1;
  }
  // The rules that were broken so far; waits for the compute stream.
  std::vector<std::string> violations();

  Scheduler& scheduler() { return *scheduler_; }
  KvConnectorWorker* worker() { return worker_.get(); }
  KvArena& arena() { return *arena_; }
  DeviceStream& compute() { return *compute_; }
  const KvContent& content() const { return content_; }
  const std::map<std::string, Client>& clients() const { return clients_; }
  const Client& client(const std::string& id) const { return clients_.at(id); }
  std::int64_t num_computed_tokens() const { return num_computed_tokens_; }
  std::int64_t num_invalid_blocks() const { return num_invalid_blocks_; }
  std::int64_t num_preemptions() const { return num_preemptions_; }
  // The metadata's JSON of the last step; null without a connector.
  const nlohmann::json& last_metadata() const { return last_metadata_; }

 private:
  Seconds Now() { return options_.clock ? options_.clock() : (now_ += 1); }
  void Forward(const StepPlan& plan);
  void CheckWrite(std::string_view id, std::span<const BlockId> table, std::size_t begin,
                  std::size_t end);
  void CheckReports(const FinishedTransfers& transfers);
  void Violation(std::string text);
  void Deliver(const StepResult& result);
  bool HasTransfersUnderWay() const;

  const Options options_;
  Device& device_;
  const KvContent content_;
  std::unique_ptr<KvArena> arena_;
  std::unique_ptr<DeviceStream> compute_;
  std::unique_ptr<KvConnectorWorker> worker_;
  std::unique_ptr<Scheduler> scheduler_;
  Seconds now_ = 0;
  std::map<std::string, Client> clients_;
  std::int64_t num_computed_tokens_ = 0;
  std::int64_t num_invalid_blocks_ = 0;
  std::int64_t num_preemptions_ = 0;
  nlohmann::json last_metadata_;
  bool shut_down_ = false;
  std::mutex mutex_;  // the forward pass may run on another thread
  std::vector<std::string> violations_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_CONNECTOR_TEST_DRIVER_H_
