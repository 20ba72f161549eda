#include "engine/connector/scripted_connector.h"

#include <algorithm>
#include <utility>

#include "engine/connector/transfer_params.h"

namespace tally {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 29;

}  // namespace

nlohmann::json ScriptedMetadata::ToJson() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Load& load : loads) {
    list.push_back({load.request_id, load.num_external_tokens, BlockIdsToJson(load.block_ids)});
  }
  return {{"loads", std::move(list)}};
}

absl::Status ScriptedConnector::Bind(const Engine& engine) {
  engine_.emplace(engine);
  return absl::OkStatus();
}

absl::StatusOr<ScriptedConnector::Script> ScriptedConnector::Parse(
    const nlohmann::json& params) const {
  Script script;
  if (!IsTruthy(params, key_)) return script;
  const nlohmann::json& object = params[key_];
  const auto held = IntParam(object, key_, "held", {0, kMostTokens}, 0);
  const auto defer = IntParam(object, key_, "defer", {0, kMostTokens}, 0);
  const auto async = BoolParam(object, key_, "async", false);
  const auto once = BoolParam(object, key_, "once", true);
  const auto save = BoolParam(object, key_, "save", false);
  for (const absl::Status& status :
       {held.status(), defer.status(), async.status(), once.status(), save.status()}) {
    if (!status.ok()) return status;
  }
  return Script{.held = static_cast<std::int32_t>(*held),
                .defer = static_cast<std::int32_t>(*defer),
                .async = *async,
                .once = *once,
                .save = *save};
}

absl::Status ScriptedConnector::CheckParams(const nlohmann::json& params) const {
  return Parse(params).status();
}

ScriptedConnector::Script ScriptedConnector::ScriptOf(RequestHandle request) const {
  const auto& params = engine_->requests.request(request).kv_transfer_params;
  return params == nullptr ? Script() : *Parse(*params);  // checked by CheckParams
}

absl::StatusOr<ExternalMatch> ScriptedConnector::GetNumNewMatchedTokens(RequestHandle request,
                                                                        std::int32_t local) {
  const Script script = ScriptOf(request);
  Progress& progress = progress_[request];
  if (progress.deferrals < script.defer) {
    ++progress.deferrals;
    return ExternalMatch{.num_tokens = std::nullopt};
  }
  const bool forgotten = script.once && progress.loaded;
  const std::int32_t matched = forgotten ? 0 : std::max(script.held - local, 0);
  return ExternalMatch{.num_tokens = matched, .load_async = matched > 0 && script.async};
}

absl::Status ScriptedConnector::UpdateStateAfterAlloc(RequestHandle request,
                                                      std::int32_t external) {
  if (external == 0) return absl::OkStatus();
  progress_[request].loaded = true;
  ScriptedMetadata::Load load{engine_->requests.request(request).id, external, {}};
  for (std::uint32_t group = 0; group < engine_->kv.num_groups(); ++group) {
    const std::span<const BlockId> table = engine_->kv.Table(request, group);
    load.block_ids.emplace_back(table.begin(), table.end());
  }
  loads_.push_back(std::move(load));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> ScriptedConnector::BuildConnectorMeta(
    const StepPlan&) {
  auto metadata = std::make_unique<ScriptedMetadata>();
  metadata->loads.swap(loads_);
  return metadata;
}

absl::StatusOr<FinishVerdict> ScriptedConnector::RequestFinished(RequestHandle request, Seconds) {
  progress_.erase(request);
  const RequestStatus status = engine_->requests.state(request).status;
  const bool complete =
      status == RequestStatus::kFinishedStopped || status == RequestStatus::kFinishedLengthCapped;
  if (!complete || !ScriptOf(request).save) return FinishVerdict();
  return FinishVerdict{.delay_free = true,
                       .kv_transfer_params = std::make_shared<const nlohmann::json>(
                           nlohmann::json{{"saved_blocks", engine_->kv.Table(request, 0).size()}})};
}

}  // namespace tally
