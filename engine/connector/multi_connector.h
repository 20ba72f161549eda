// Several connectors as one (connectors.md section 2): the first that holds something loads it, all
// of them save.
#ifndef TALLY_ENGINE_CONNECTOR_MULTI_CONNECTOR_H_
#define TALLY_ENGINE_CONNECTOR_MULTI_CONNECTOR_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/core/kv_connector.h"

namespace tally {

struct MultiMetadata final : ConnectorMetadata {
  std::vector<std::unique_ptr<const ConnectorMetadata>> children;  // in order
  // Requests that several children save: so many reports of the workers are to be passed over until
  // the last one tells that the request is done.
  std::map<std::string, int> extra_async_saves;

  nlohmann::json ToJson() const override;
};

class MultiConnector final : public KvConnector {
 public:
  explicit MultiConnector(std::vector<std::unique_ptr<KvConnector>> children)
      : children_(std::move(children)) {}

  absl::Status Bind(const Engine& engine) override;
  absl::Status CheckParams(const nlohmann::json& params) const override;
  absl::StatusOr<ExternalMatch> GetNumNewMatchedTokens(RequestHandle request,
                                                       std::int32_t local) override;
  absl::Status UpdateStateAfterAlloc(RequestHandle request, std::int32_t external) override;
  absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> BuildConnectorMeta(
      const StepPlan& plan) override;
  absl::Status UpdateConnectorOutput(std::span<const std::string_view> finished_sending,
                                     std::span<const std::string_view> finished_recving) override;
  absl::StatusOr<FinishVerdict> RequestFinished(RequestHandle request, Seconds now) override;
  void TakeEvents(std::vector<KvEvent>& events) override;

  std::size_t num_children() const { return children_.size(); }
  const KvConnector& child(std::size_t i) const { return *children_[i]; }

 private:
  const std::vector<std::unique_ptr<KvConnector>> children_;
  std::optional<Engine> engine_;
  // Which child loads for a request, from its last match on (2.3: a later match of nobody leaves
  // it).
  absl::flat_hash_map<RequestHandle, std::size_t> chosen_;
  std::map<std::string, int> extra_async_saves_;  // since the last step
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_MULTI_CONNECTOR_H_
