#include "engine/connector/nixl_connector.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/connector/transfer_params.h"

namespace tally {
namespace {

constexpr std::array<std::string_view, 4> kPeerKeys = {"remote_engine_id", "remote_request_id",
                                                       "remote_host", "remote_port"};

bool NamesPeer(const nlohmann::json& params) {
  return std::all_of(kPeerKeys.begin(), kPeerKeys.end(),
                     [&](std::string_view key) { return params.contains(std::string(key)); });
}

nlohmann::json Ids(const std::set<std::string>& ids) { return nlohmann::json(ids); }

}  // namespace

nlohmann::json NixlMetadata::ToJson() const {
  nlohmann::json receives = nlohmann::json::object();
  for (const auto& [id, receive] : recv) {
    receives[id] = {{"local", BlockIdsToJson(receive.local)},
                    {"remote", receive.params->value("remote_block_ids", nlohmann::json())}};
  }
  std::set<std::string> sent;
  for (const auto& [id, expiry] : send) sent.insert(id);
  return {{"recv", std::move(receives)},
          {"send", Ids(sent)},
          {"in_batch", Ids(in_batch)},
          {"not_processed", Ids(not_processed)}};
}

absl::Status NixlConnector::Bind(const Engine& engine) {
  engine_.emplace(engine);
  for (std::uint32_t g = 0; g < engine.kv.num_groups(); ++g) {
    const KvGroupSpec& spec = engine.kv.group(g).spec();
    if (spec.kind == AttentionKind::kMamba) {
      return absl::InvalidArgumentError(
          absl::StrCat("groups[", g, "].type: mamba, wanted none with a nixl connector"));
    }
    // One group is never clipped: the hybrid KV cache manager is off then.
    const bool clips = engine.kv.num_groups() > 1 && spec.kind == AttentionKind::kSlidingWindow;
    // One block more: the window's start need not be a block's.
    window_blocks_.push_back(
        clips ? static_cast<std::size_t>(CeilDiv(spec.window, spec.block_size)) + 1 : 0);
  }
  return absl::OkStatus();
}

absl::Status NixlConnector::CheckParams(const nlohmann::json& params) const {
  if (engine_->config.behavior.transfer_params_unchecked) return absl::OkStatus();
  if (!IsTruthy(params, "do_remote_prefill") || !IsTruthy(params, "remote_block_ids"))
    return absl::OkStatus();
  const nlohmann::json& groups = params["remote_block_ids"];
  const bool lists = groups.is_array() && groups.size() == engine_->kv.num_groups() &&
                     std::all_of(groups.begin(), groups.end(), [](const nlohmann::json& group) {
                       return group.is_array() &&
                              std::all_of(group.begin(), group.end(), [](const nlohmann::json& id) {
                                return id.is_number_unsigned();
                              });
                     });
  if (!lists) {
    return absl::InvalidArgumentError(
        absl::StrCat("kv.remote_block_ids: ", groups.dump().substr(0, 80), ", wanted ",
                     engine_->kv.num_groups(), " lists of block ids"));
  }
  return absl::OkStatus();
}

const nlohmann::json* NixlConnector::Params(RequestHandle request) const {
  const auto& params = engine_->requests.request(request).kv_transfer_params;
  return params == nullptr || !params->is_object() || params->empty() ? nullptr : params.get();
}

bool NixlConnector::WantsRemotePrefill(RequestHandle request) const {
  const nlohmann::json* params = Params(request);
  if (params == nullptr || !IsTruthy(*params, "do_remote_prefill") || pulled_.contains(request))
    return false;
  // Without blocks to read, or a peer to read them from, nothing is promised: it is computed here.
  return engine_->config.behavior.transfer_params_unchecked ||
         (IsTruthy(*params, "remote_block_ids") && NamesPeer(*params));
}

absl::StatusOr<ExternalMatch> NixlConnector::GetNumNewMatchedTokens(RequestHandle request,
                                                                    std::int32_t local) {
  if (!WantsRemotePrefill(request)) return ExternalMatch();
  // All of the prompt that is not here, whatever the peer has: it computed the same prompt.
  const std::int32_t missing = engine_->requests.state(request).num_prompt_tokens - local;
  if (missing <= 0) return ExternalMatch();
  return ExternalMatch{.num_tokens = missing, .load_async = true};
}

BlockIdGroups NixlConnector::UnhashedBlocks(RequestHandle request) const {
  BlockIdGroups groups(engine_->kv.num_groups());
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    for (const BlockId block : engine_->kv.Table(request, g)) {
      if (block != kNullBlock && !engine_->kv.pool().IsCached(block)) groups[g].push_back(block);
    }
  }
  return groups;
}

void NixlConnector::ClipToWindows(BlockIdGroups& groups) const {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::size_t most = window_blocks_[g];
    if (most == 0 || groups[g].size() <= most) continue;
    groups[g].erase(groups[g].begin(), groups[g].end() - static_cast<std::ptrdiff_t>(most));
  }
}

absl::Status NixlConnector::UpdateStateAfterAlloc(RequestHandle request, std::int32_t external) {
  const nlohmann::json* params = Params(request);
  if (params == nullptr) return absl::OkStatus();
  const std::string& id = engine_->requests.request(request).id;
  if (IsTruthy(*params, "do_remote_decode")) next_.in_batch.insert(id);
  if (!WantsRemotePrefill(request)) return absl::OkStatus();
  if (!IsTruthy(*params, "remote_block_ids")) {
    if (external != 0) return absl::InternalError("AssertionError: ");  // 9.9
  } else if (NamesPeer(*params)) {
    NixlMetadata::Receive receive{{}, engine_->requests.request(request).kv_transfer_params};
    if (external > 0) {
      receive.local = UnhashedBlocks(request);
      ClipToWindows(receive.local);
    }
    next_.recv.insert_or_assign(id, std::move(receive));
  }
  pulled_.insert(request);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> NixlConnector::BuildConnectorMeta(
    const StepPlan&) {
  auto metadata = std::make_unique<NixlMetadata>(std::move(next_));
  next_ = NixlMetadata();
  return metadata;
}

absl::StatusOr<FinishVerdict> NixlConnector::RequestFinished(RequestHandle request, Seconds now) {
  const nlohmann::json* params = Params(request);
  if (params == nullptr) return FinishVerdict();
  const bool never_admitted = WantsRemotePrefill(request);
  pulled_.erase(request);
  const std::string& id = engine_->requests.request(request).id;
  if (never_admitted) {
    // The peer keeps blocks for it: it has to be told.
    next_.recv.insert_or_assign(
        id, NixlMetadata::Receive{{}, engine_->requests.request(request).kv_transfer_params});
    return FinishVerdict();
  }
  if (!IsTruthy(*params, "do_remote_decode")) return FinishVerdict();
  if (engine_->requests.state(request).status != RequestStatus::kFinishedLengthCapped) {
    next_.not_processed.insert(id);
    return FinishVerdict();
  }
  BlockIdGroups blocks(engine_->kv.num_groups());
  bool delay = false;
  for (std::uint32_t g = 0; g < blocks.size(); ++g) {
    const std::span<const BlockId> table = engine_->kv.Table(request, g);
    blocks[g].assign(table.begin(), table.end());
    delay |= !table.empty();
  }
  if (delay) {
    next_.send.insert_or_assign(id, now + options_.send_timeout);
    ClipToWindows(blocks);
  }
  return FinishVerdict{.delay_free = delay,
                       .kv_transfer_params = std::make_shared<const nlohmann::json>(
                           nlohmann::json{{"do_remote_prefill", true},
                                          {"do_remote_decode", false},
                                          {"remote_block_ids", BlockIdsToJson(blocks)},
                                          {"remote_engine_id", options_.engine_id},
                                          {"remote_request_id", id},
                                          {"remote_host", options_.host},
                                          {"remote_port", options_.port},
                                          {"tp_size", options_.tp_size}})};
}

}  // namespace tally
