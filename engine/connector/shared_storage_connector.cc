#include "engine/connector/shared_storage_connector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/connector/transfer_params.h"

namespace tally {
namespace {

nlohmann::json TransfersToJson(const std::vector<SharedStorageMetadata::Transfer>& transfers) {
  nlohmann::json list = nlohmann::json::array();
  for (const SharedStorageMetadata::Transfer& transfer : transfers) {
    list.push_back(nlohmann::json::array(
        {transfer.request_id, BlockIdsToJson(transfer.gpu_blocks), transfer.keys}));
  }
  return list;
}

}  // namespace

nlohmann::json SharedStorageMetadata::ToJson() const {
  return {{"load", TransfersToJson(load)}, {"store", TransfersToJson(store)}, {"flush", flush}};
}

absl::Status SharedStorageConnector::Bind(const Engine& engine) {
  engine_.emplace(engine);
  if (engine.kv.num_groups() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("groups: ", engine.kv.num_groups(),
                                                   ", wanted one with a shared storage connector"));
  }
  block_size_ = engine.kv.group(0).block_size();
  return absl::OkStatus();
}

SharedStorageConnector::RequestState& SharedStorageConnector::Of(RequestHandle request) {
  if (Index(request) >= states_.size()) states_.resize(engine_->requests.num_handles());
  return states_[Index(request)];
}

std::string SharedStorageConnector::KeyOf(RequestHandle request, std::size_t block) const {
  const BlockHashChain& chain = engine_->requests.request(request).hashes;
  if (!chain.digests.empty()) {
    const BlockDigest& digest = chain.digests[block];
    return absl::BytesToHexString(
        absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
  }
  const BlockHash& hash = chain.hashes[block];
  return absl::StrCat(absl::Hex(hash.high, absl::kZeroPad16), absl::Hex(hash.low, absl::kZeroPad16),
                      absl::Hex(engine_->config.kv.hash_seed, absl::kZeroPad16));
}

void SharedStorageConnector::Begin(RequestHandle request, RequestState& state, std::size_t first,
                                   std::size_t end) {
  state.look_up = std::make_shared<LookUp>();
  state.look_up->first = first;
  state.look_up->begun = std::chrono::steady_clock::now();
  std::vector<std::string> keys;
  for (std::size_t i = first; i < end; ++i) keys.push_back(KeyOf(request, i));
  io_.Submit([store = store_, look_up = state.look_up, keys = std::move(keys)] {
    constexpr std::size_t kAtOnce = 64;
    std::size_t held = 0;
    while (held < keys.size() && look_up->wanted) {
      const auto part = std::span(keys).subspan(held, std::min(kAtOnce, keys.size() - held));
      const std::size_t found = store->HeldPrefix(part);
      held += found;
      if (found < part.size()) break;
    }
    look_up->held = static_cast<std::int64_t>(held);
  });
}

absl::StatusOr<ExternalMatch> SharedStorageConnector::GetNumNewMatchedTokens(RequestHandle request,
                                                                             std::int32_t local) {
  RequestState& state = Of(request);
  state.local = local;
  const auto first = static_cast<std::size_t>(local / block_size_);
  state.next_stored = first;
  const std::size_t end =
      static_cast<std::size_t>(engine_->requests.state(request).num_tokens / block_size_);
  TALLY_CHECK(end <= engine_->requests.request(request).hashes.hashes.size(), "%zu blocks", end);
  if (first >= end) return ExternalMatch();
  // Less is cached than when it was looked for: look again.
  if (state.look_up == nullptr || state.look_up->first > first) Begin(request, state, first, end);
  const std::int64_t held = state.look_up->held;
  if (held < 0) {
    if (std::chrono::steady_clock::now() - state.look_up->begun < options_.lookup_timeout)
      return ExternalMatch{.num_tokens = std::nullopt};
    return ExternalMatch();
  }
  const std::size_t held_end = std::min(state.look_up->first + static_cast<std::size_t>(held), end);
  if (held_end <= first) return ExternalMatch();
  state.next_stored = held_end;
  return ExternalMatch{.num_tokens = static_cast<std::int32_t>(held_end) * block_size_ - local,
                       .load_async = true};
}

absl::Status SharedStorageConnector::UpdateStateAfterAlloc(RequestHandle request,
                                                           std::int32_t external) {
  RequestState& state = Of(request);
  if (state.look_up != nullptr) {
    state.look_up->wanted = false;
    state.look_up.reset();  // when it is admitted again, others may have stored more
  }
  if (external == 0) return absl::OkStatus();
  const std::span<const BlockId> table = engine_->kv.Table(request, 0);
  const auto end = static_cast<std::size_t>(CeilDiv(state.local + external, block_size_));
  SharedStorageMetadata::Transfer load{.request_id = engine_->requests.request(request).id};
  for (std::size_t i = 0; i < end; ++i) {
    if (table[i] == kNullBlock || engine_->kv.pool().IsCached(table[i])) continue;
    // Without a prefix cache nothing says that a block is filled but its place.
    if (i < static_cast<std::size_t>(state.local / block_size_)) continue;
    load.gpu_blocks.push_back(table[i]);
    load.keys.push_back(KeyOf(request, i));
  }
  loads_.push_back(std::move(load));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> SharedStorageConnector::BuildConnectorMeta(
    const StepPlan& plan) {
  auto metadata = std::make_unique<SharedStorageMetadata>();
  metadata->load.swap(loads_);
  for (const ScheduledRequest& entry : plan.requests) {
    RequestState& state = Of(entry.request);
    const std::int32_t known = engine_->requests.state(entry.request).num_tokens;
    const auto end = static_cast<std::size_t>(
        std::min(entry.num_computed_tokens + entry.num_tokens, known) / block_size_);
    const std::span<const BlockId> table = engine_->kv.Table(entry.request, 0);
    // A load that failed left blocks behind to compute.
    const auto computed = static_cast<std::size_t>(entry.num_computed_tokens / block_size_);
    SharedStorageMetadata::Transfer store;
    for (std::size_t i = std::min(state.next_stored, computed); i < end; ++i) {
      if (table[i] == kNullBlock) continue;
      store.gpu_blocks.push_back(table[i]);
      store.keys.push_back(KeyOf(entry.request, i));
    }
    state.next_stored = end;
    if (store.keys.empty()) continue;
    store.request_id = engine_->requests.request(entry.request).id;
    stored_.insert(store.request_id);
    metadata->store.push_back(std::move(store));
  }
  for (const RequestHandle request : plan.preempted)
    metadata->flush.push_back(engine_->requests.request(request).id);
  std::sort(metadata->flush.begin(), metadata->flush.end());
  return metadata;
}

absl::Status SharedStorageConnector::UpdateConnectorOutput(
    std::span<const std::string_view> finished_sending, std::span<const std::string_view>) {
  for (const std::string_view id : finished_sending)
    stored_.erase(absl::string_view(id.data(), id.size()));
  return absl::OkStatus();
}

absl::StatusOr<FinishVerdict> SharedStorageConnector::RequestFinished(RequestHandle request,
                                                                      Seconds) {
  RequestState& state = Of(request);
  if (state.look_up != nullptr) state.look_up->wanted = false;
  state = RequestState();
  return FinishVerdict{.delay_free = stored_.contains(engine_->requests.request(request).id),
                       .kv_transfer_params = nullptr};
}

}  // namespace tally
