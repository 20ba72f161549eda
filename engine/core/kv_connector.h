// The scheduler's side of a KV connector: what brings KV from elsewhere (another engine, host
// memory, a shared store) and takes it there. Names are the field's; the contract is
// connectors.md section 1.
//
// A connector has two sides. This one lives in the scheduler and decides: how much of a request is
// held outside, which blocks are to be filled and saved, when blocks may be given back. It tells
// the other side, in the workers, by a ConnectorMetadata with every step; the workers tell what
// became of it with StepOutcome. Everything that passes between the two is a value, so they may
// live in two processes.
#ifndef TALLY_ENGINE_CORE_KV_CONNECTOR_H_
#define TALLY_ENGINE_CORE_KV_CONNECTOR_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/types.h"
#include "engine/core/engine_config.h"
#include "engine/core/request_table.h"
#include "engine/core/step_plan.h"
#include "engine/kv/kv_cache_manager.h"
#include "engine/kv/kv_events.h"

namespace tally {

// What a connector tells the workers with one step.
class ConnectorMetadata {
 public:
  virtual ~ConnectorMetadata() = default;
  // As the trace format shows it.
  virtual nlohmann::json ToJson() const = 0;
};

// The tokens that a connector holds of a request beyond those cached locally.
struct ExternalMatch {
  std::optional<std::int32_t> num_tokens = 0;  // nothing: not known yet, ask again
  // The load goes on beside the following steps; the request waits for it. Else it happens in the
  // step.
  bool load_async = false;
};

// What becomes of the blocks of a request that ended.
struct FinishVerdict {
  bool delay_free = false;  // until the workers report it in finished_sending
  std::shared_ptr<const nlohmann::json> kv_transfer_params;  // for the client; null for none
};

// One thread, the scheduler's. No call may block. An Internal status "Class: text" is a fault of
// the reference (vllm_0_20 only), after which the scheduler is not used any more.
class KvConnector {
 public:
  // What a connector may read; outlives it.
  struct Engine {
    const EngineConfig& config;
    const RequestTable& requests;
    const KvCacheManager& kv;
  };

  virtual ~KvConnector() = default;

  // Once, before all else. A status that names what the engine's configuration lacks for it.
  virtual absl::Status Bind(const Engine& engine) = 0;

  // Whether a request's transfer parameters can be served; the status names the field. Changes
  // nothing.
  virtual absl::Status CheckParams(const nlohmann::json&) const { return absl::OkStatus(); }

  // A waiting request without computed tokens stands at the head of its queue; `local` of its
  // tokens are cached. Asked again at every attempt to admit it: cheap and idempotent.
  virtual absl::StatusOr<ExternalMatch> GetNumNewMatchedTokens(RequestHandle request,
                                                               std::int32_t local) = 0;

  // A waiting request got its blocks, in its block table, with room for `external` tokens. Also
  // with 0: when the load is over, when it resumes, or when another connector was chosen.
  virtual absl::Status UpdateStateAfterAlloc(RequestHandle request, std::int32_t external) = 0;

  // The last thing of every step, also of one without requests. Computed tokens of requests are
  // those from before the step.
  virtual absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> BuildConnectorMeta(
      const StepPlan& plan) = 0;

  // Transfers that ended in all workers: ids in the order given, known or not.
  virtual absl::Status UpdateConnectorOutput(std::span<const std::string_view> /*finished_sending*/,
                                             std::span<const std::string_view>
                                             /*finished_recving*/) {
    return absl::OkStatus();
  }

  // A request ended, its status says how; its blocks are still in its table. Once a request.
  virtual absl::StatusOr<FinishVerdict> RequestFinished(RequestHandle request, Seconds now) = 0;

  // Appends what entered and left its own cache since the last call.
  virtual void TakeEvents(std::vector<KvEvent>& /*events*/) {}
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_KV_CONNECTOR_H_
