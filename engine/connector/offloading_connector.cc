#include "engine/connector/offloading_connector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/connector/transfer_params.h"

namespace tally {
namespace {

constexpr std::string_view kMedium = "CPU";

std::string Bytes(const BlockDigest& digest) { return {digest.begin(), digest.end()}; }

nlohmann::json TransfersToJson(const std::vector<OffloadingMetadata::Transfer>& transfers,
                               bool load) {
  nlohmann::json list = nlohmann::json::array();
  for (const OffloadingMetadata::Transfer& transfer : transfers) {
    nlohmann::json gpu = BlockIdsToJson(transfer.gpu_blocks);
    nlohmann::json host = transfer.host_slots;
    list.push_back(nlohmann::json::array(
        {transfer.request_id, load ? host : gpu, load ? std::move(gpu) : std::move(host)}));
  }
  return list;
}

}  // namespace

nlohmann::json OffloadingMetadata::ToJson() const {
  return {{"load", TransfersToJson(load, true)},
          {"store", TransfersToJson(store, false)},
          {"flush", flush}};
}

absl::Status OffloadingConnector::Bind(const Engine& engine) {
  engine_.emplace(engine);
  if (engine.kv.num_groups() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("groups: ", engine.kv.num_groups(),
                                                   ", wanted one with an offloading connector"));
  }
  gpu_block_size_ = engine.kv.group(0).block_size();
  if (options_.block_size < gpu_block_size_ || options_.block_size % gpu_block_size_ != 0) {
    return absl::InvalidArgumentError(absl::StrCat("connector.block_size: ", options_.block_size,
                                                   ", wanted a multiple of the GPU block size ",
                                                   gpu_block_size_));
  }
  factor_ = static_cast<std::size_t>(options_.block_size / gpu_block_size_);
  return absl::OkStatus();
}

OffloadingConnector::RequestState& OffloadingConnector::Of(RequestHandle request) {
  if (Index(request) >= states_.size()) states_.resize(engine_->requests.num_handles());
  return states_[Index(request)];
}

void OffloadingConnector::UpdateKeys(RequestHandle request, RequestState& state) {
  const BlockHashChain& chain = engine_->requests.request(request).hashes;
  // The hash of an offloaded block is that of its last GPU block, which covers all before it.
  for (std::size_t i = (state.keys.size() + 1) * factor_; i <= chain.hashes.size(); i += factor_)
    state.keys.push_back(chain.hashes[i - 1]);
}

absl::StatusOr<ExternalMatch> OffloadingConnector::GetNumNewMatchedTokens(RequestHandle request,
                                                                          std::int32_t local) {
  RequestState& state = Of(request);
  state.blocks.clear();
  UpdateKeys(request, state);
  state.local = local;
  manager_.Touch(state.keys);

  const auto end =
      static_cast<std::size_t>(engine_->requests.state(request).num_tokens / options_.block_size);
  TALLY_CHECK(end <= state.keys.size(), "%zu blocks, %zu keys", end, state.keys.size());
  // Less than an offloaded block is not worth a load.
  const auto worth = [&](std::size_t blocks) {
    return static_cast<std::int64_t>(blocks) * options_.block_size - local >= options_.block_size;
  };
  if (!worth(end)) return ExternalMatch();
  const auto first = static_cast<std::size_t>(local / options_.block_size);
  std::size_t held = first;
  bool being_loaded = false;
  for (; held < end && manager_.Holds(state.keys[held]); ++held) {
    being_loaded |= keys_being_loaded_.contains(state.keys[held]);
  }
  if (held == first || !worth(held)) return ExternalMatch();
  // Another request brings a part of it to the GPU: wait and hit it there.
  if (being_loaded) return ExternalMatch{.num_tokens = std::nullopt};
  return ExternalMatch{.num_tokens = static_cast<std::int32_t>(held) * options_.block_size - local,
                       .load_async = true};
}

absl::Status OffloadingConnector::UpdateStateAfterAlloc(RequestHandle request,
                                                        std::int32_t external) {
  if (external == 0) return absl::OkStatus();
  RequestState& state = Of(request);
  const std::int32_t total = state.local + external;
  const std::span<const BlockId> table = engine_->kv.Table(request, 0);
  const auto end = static_cast<std::size_t>(CeilDiv(total, gpu_block_size_));
  std::size_t first = 0;  // block to fill: what was cached since the look-up is there
  while (first < end && (table[first] == kNullBlock || engine_->kv.pool().IsCached(table[first]))) {
    ++first;
  }
  const auto end_key = static_cast<std::size_t>(CeilDiv(total, options_.block_size));
  TALLY_CHECK(end <= table.size() && end_key <= state.keys.size(), "%zu blocks, %zu keys", end,
              end_key);
  std::vector<BlockHash> keys;
  if (first < end) {
    keys.assign(state.keys.begin() + static_cast<std::ptrdiff_t>(first / factor_),
                state.keys.begin() + static_cast<std::ptrdiff_t>(end_key));
  }
  // A prefill for another engine saves everything: that engine may look for it here.
  const auto& params = engine_->requests.request(request).kv_transfer_params;
  if (params == nullptr || !IsTruthy(*params, "do_remote_decode"))
    state.next_stored = static_cast<std::int32_t>(end_key);
  const std::string& id = engine_->requests.request(request).id;
  loads_.push_back({.request_id = id,
                    .gpu_blocks = {table.begin() + static_cast<std::ptrdiff_t>(first),
                                   table.begin() + static_cast<std::ptrdiff_t>(end)},
                    .host_slots = manager_.PrepareLoad(keys),
                    .first_gpu_block = static_cast<std::uint32_t>(first)});
  if (engine_->config.kv.enable_prefix_caching) keys_being_loaded_.insert(keys.begin(), keys.end());
  std::vector<BlockHash>& loaded = being_loaded_[id];
  loaded.insert(loaded.end(), keys.begin(), keys.end());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> OffloadingConnector::BuildConnectorMeta(
    const StepPlan& plan) {
  auto metadata = std::make_unique<OffloadingMetadata>();
  metadata->load.swap(loads_);
  using Kind = ScheduledRequest::Kind;
  for (const Kind kind : {Kind::kNew, Kind::kRunning, Kind::kResumed}) {
    for (const ScheduledRequest& entry : plan.requests) {
      if (entry.kind == kind) Store(entry, plan, *metadata);
    }
  }
  for (const RequestHandle request : plan.preempted)
    metadata->flush.push_back(engine_->requests.request(request).id);
  std::sort(metadata->flush.begin(), metadata->flush.end());
  // The workers end these stores before anything of the step.
  for (const std::string& id : metadata->flush) {
    const auto stored = being_stored_.find(id);
    if (stored == being_stored_.end() || stored->second.empty()) continue;
    TellStored(manager_.CompleteStore(stored->second));
    stored->second.clear();
  }
  return metadata;
}

void OffloadingConnector::Store(const ScheduledRequest& entry, const StepPlan& plan,
                                OffloadingMetadata& metadata) {
  RequestState& state = Of(entry.request);
  UpdateKeys(entry.request, state);
  if (entry.kind == ScheduledRequest::Kind::kResumed) state.blocks.clear();
  if (entry.has_new_blocks()) {
    const std::span<const BlockId> fresh =
        engine_->kv.Table(entry.request, 0).subspan(plan.FirstNewBlock(entry, 0));
    state.blocks.insert(state.blocks.end(), fresh.begin(), fresh.end());
  }
  // Asynchronous steps compute tokens that are not known yet.
  const std::int32_t offloadable = std::min(entry.num_computed_tokens + entry.num_tokens,
                                            engine_->requests.state(entry.request).num_tokens);
  const std::int32_t end = offloadable / options_.block_size;
  std::vector<BlockHash> offered;
  for (std::int32_t i = state.next_stored; i < end; ++i) {
    const auto block = static_cast<std::size_t>(i);
    // A window may have dropped the block; then it dropped all before it, too.
    if (state.blocks[block * factor_ + factor_ - 1] != kNullBlock)
      offered.push_back(state.keys[block]);
  }
  if (offered.empty()) {
    state.next_stored = end;
    return;
  }
  std::optional<OffloadManager::Store> store = manager_.PrepareStore(offered);
  if (!store) return;  // no room now: offered again with the next step
  const std::int32_t first = std::exchange(state.next_stored, end);
  if (store->keys.empty()) return;
  manager_.Touch(state.keys);
  TellRemoved(store->evicted);

  OffloadingMetadata::Transfer transfer;
  transfer.request_id = engine_->requests.request(entry.request).id;
  transfer.host_slots = std::move(store->slots);
  std::size_t next = 0;  // of store->keys, which are in order
  for (std::int32_t i = first; i < end && next < store->keys.size(); ++i) {
    const auto block = static_cast<std::size_t>(i);
    if (!(state.keys[block] == store->keys[next])) continue;
    if (engine_->config.kv_events) {
      digests_.emplace(
          store->keys[next],
          engine_->requests.request(entry.request).hashes.digests[(block + 1) * factor_ - 1]);
    }
    ++next;
    for (std::size_t j = block * factor_; j < (block + 1) * factor_; ++j) {
      if (state.blocks[j] == kNullBlock) continue;
      if (transfer.gpu_blocks.empty()) transfer.first_gpu_block = static_cast<std::uint32_t>(j);
      transfer.gpu_blocks.push_back(state.blocks[j]);
    }
  }
  std::vector<BlockHash>& stored = being_stored_[transfer.request_id];
  stored.insert(stored.end(), store->keys.begin(), store->keys.end());
  metadata.store.push_back(std::move(transfer));
}

absl::Status OffloadingConnector::UpdateConnectorOutput(
    std::span<const std::string_view> finished_sending,
    std::span<const std::string_view> finished_recving) {
  for (const std::string_view id : finished_sending) {
    const auto stored = being_stored_.find(absl::string_view(id.data(), id.size()));
    if (stored == being_stored_.end()) continue;
    TellStored(manager_.CompleteStore(stored->second));
    being_stored_.erase(stored);
  }
  for (const std::string_view id : finished_recving) {
    const auto loaded = being_loaded_.find(absl::string_view(id.data(), id.size()));
    if (loaded == being_loaded_.end()) continue;
    for (const BlockHash& key : loaded->second) keys_being_loaded_.erase(key);
    manager_.CompleteLoad(loaded->second);
    being_loaded_.erase(loaded);
  }
  return absl::OkStatus();
}

absl::StatusOr<FinishVerdict> OffloadingConnector::RequestFinished(RequestHandle request, Seconds) {
  RequestState& state = Of(request);
  state.next_stored = 0;
  state.keys.clear();
  state.blocks.clear();
  return FinishVerdict{.delay_free = being_stored_.contains(engine_->requests.request(request).id),
                       .kv_transfer_params = nullptr};
}

void OffloadingConnector::TellStored(std::vector<BlockHash> keys) {
  if (keys.empty() || !engine_->config.kv_events) return;
  KvEvent event;
  event.kind = KvEvent::Kind::kStored;
  event.medium = kMedium;
  for (const BlockHash& key : keys) event.hashes.push_back(Bytes(digests_.at(key)));
  std::sort(event.hashes.begin(), event.hashes.end());
  events_.push_back(std::move(event));
}

void OffloadingConnector::TellRemoved(const std::vector<BlockHash>& keys) {
  if (keys.empty() || !engine_->config.kv_events) return;
  KvEvent event;
  event.kind = KvEvent::Kind::kRemoved;
  event.medium = kMedium;
  for (const BlockHash& key : keys) {
    event.hashes.push_back(Bytes(digests_.at(key)));
    digests_.erase(key);
  }
  events_.push_back(std::move(event));
}

void OffloadingConnector::TakeEvents(std::vector<KvEvent>& events) {
  std::move(events_.begin(), events_.end(), std::back_inserter(events));
  events_.clear();
}

}  // namespace tally
