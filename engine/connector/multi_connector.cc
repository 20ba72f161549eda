#include "engine/connector/multi_connector.h"

#include <utility>

namespace tally {

nlohmann::json MultiMetadata::ToJson() const {
  nlohmann::json json;
  json["children"] = nlohmann::json::array();
  for (const auto& child : children) json["children"].push_back(child->ToJson());
  if (!extra_async_saves.empty()) json["extra_async_saves"] = extra_async_saves;
  return json;
}

absl::Status MultiConnector::Bind(const Engine& engine) {
  engine_.emplace(engine);
  for (const auto& child : children_) {
    if (absl::Status status = child->Bind(engine); !status.ok()) return status;
  }
  if (engine.kv.num_groups() > 1) {
    return absl::InvalidArgumentError("groups: several, wanted one with a multi connector");
  }
  return absl::OkStatus();
}

absl::Status MultiConnector::CheckParams(const nlohmann::json& params) const {
  for (const auto& child : children_) {
    if (absl::Status status = child->CheckParams(params); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<ExternalMatch> MultiConnector::GetNumNewMatchedTokens(RequestHandle request,
                                                                     std::int32_t local) {
  ExternalMatch chosen;
  for (std::size_t i = 0; i < children_.size(); ++i) {
    const absl::StatusOr<ExternalMatch> match =
        children_[i]->GetNumNewMatchedTokens(request, local);
    if (!match.ok()) return match.status();
    if (!match->num_tokens) return ExternalMatch{.num_tokens = std::nullopt};  // ask all again
    if (chosen.num_tokens == 0 && *match->num_tokens > 0) {
      chosen = *match;
      chosen_[request] = i;
    }
  }
  return chosen;
}

absl::Status MultiConnector::UpdateStateAfterAlloc(RequestHandle request, std::int32_t external) {
  const auto chosen = chosen_.find(request);
  for (std::size_t i = 0; i < children_.size(); ++i) {
    const bool loads = chosen != chosen_.end() && chosen->second == i;
    if (absl::Status status = children_[i]->UpdateStateAfterAlloc(request, loads ? external : 0);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> MultiConnector::BuildConnectorMeta(
    const StepPlan& plan) {
  auto metadata = std::make_unique<MultiMetadata>();
  for (const auto& child : children_) {
    auto part = child->BuildConnectorMeta(plan);
    if (!part.ok()) return part.status();
    metadata->children.push_back(*std::move(part));
  }
  metadata->extra_async_saves.swap(extra_async_saves_);
  return metadata;
}

absl::Status MultiConnector::UpdateConnectorOutput(
    std::span<const std::string_view> finished_sending,
    std::span<const std::string_view> finished_recving) {
  for (const auto& child : children_) {
    if (absl::Status status = child->UpdateConnectorOutput(finished_sending, finished_recving);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FinishVerdict> MultiConnector::RequestFinished(RequestHandle request, Seconds now) {
  FinishVerdict all;
  int saves = 0;
  for (const auto& child : children_) {
    absl::StatusOr<FinishVerdict> verdict = child->RequestFinished(request, now);
    if (!verdict.ok()) return verdict.status();
    if (verdict->delay_free) ++saves;
    if (verdict->kv_transfer_params == nullptr) continue;
    if (all.kv_transfer_params != nullptr && !engine_->config.behavior.one_connector_may_answer) {
      nlohmann::json merged = *verdict->kv_transfer_params;
      merged.update(*all.kv_transfer_params);
      all.kv_transfer_params = std::make_shared<const nlohmann::json>(std::move(merged));
      continue;
    }
    if (all.kv_transfer_params != nullptr) {
      return absl::InternalError("RuntimeError: Only one connector can produce KV transfer params");
    }
    all.kv_transfer_params = std::move(verdict->kv_transfer_params);
  }
  if (saves > 1) extra_async_saves_[engine_->requests.request(request).id] = saves - 1;
  all.delay_free = saves > 0;
  chosen_.erase(request);
  return all;
}

void MultiConnector::TakeEvents(std::vector<KvEvent>& events) {
  for (const auto& child : children_) child->TakeEvents(events);
}

}  // namespace tally
