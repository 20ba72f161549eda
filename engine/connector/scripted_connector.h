// A connector that does what each request's transfer parameters say: the means by which recordings
// and tests reach every path of the scheduler (trace format, "Connectors").
//
// A request's `scripted` object (`scripted0`, `scripted1`, ... for the children of a multi
// connector): `held` [0] tokens of its prefix are held outside; the first `defer` [0] look-ups are
// answered "not known yet"; `async` [false] says that a load ends in a later step; `once` [true]
// forgets the prefix after the first allocation that uses it; `save` [false] keeps the blocks of a
// request that stopped by itself until finished_sending.
#ifndef TALLY_ENGINE_CONNECTOR_SCRIPTED_CONNECTOR_H_
#define TALLY_ENGINE_CONNECTOR_SCRIPTED_CONNECTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/core/kv_connector.h"

namespace tally {

struct ScriptedMetadata final : ConnectorMetadata {
  struct Load {
    std::string request_id;
    std::int32_t num_external_tokens = 0;
    std::vector<std::vector<BlockId>> block_ids;  // a list a group
  };
  std::vector<Load> loads;  // in order of allocation

  nlohmann::json ToJson() const override;
};

class ScriptedConnector final : public KvConnector {
 public:
  // `key`: of its object in a request's parameters.
  explicit ScriptedConnector(std::string key = "scripted") : key_(std::move(key)) {}

  absl::Status Bind(const Engine& engine) override;
  absl::Status CheckParams(const nlohmann::json& params) const override;
  absl::StatusOr<ExternalMatch> GetNumNewMatchedTokens(RequestHandle request,
                                                       std::int32_t local) override;
  absl::Status UpdateStateAfterAlloc(RequestHandle request, std::int32_t external) override;
  absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> BuildConnectorMeta(
      const StepPlan& plan) override;
  absl::StatusOr<FinishVerdict> RequestFinished(RequestHandle request, Seconds now) override;

 private:
  struct Script {
    std::int32_t held = 0;
    std::int32_t defer = 0;
    bool async = false;
    bool once = true;
    bool save = false;
  };
  struct Progress {
    std::int32_t deferrals = 0;
    bool loaded = false;
  };

  absl::StatusOr<Script> Parse(const nlohmann::json& params) const;
  Script ScriptOf(RequestHandle request) const;

  const std::string key_;
  std::optional<Engine> engine_;
  absl::flat_hash_map<RequestHandle, Progress> progress_;
  std::vector<ScriptedMetadata::Load> loads_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_SCRIPTED_CONNECTOR_H_
