// The scheduler's side of a store of KV blocks that engines share: a folder of files, a server
// (block_store.h; connectors.md 7.4).
//
// Every full block that a request computes is stored under its hash; a request loads the longest
// run of held blocks behind those cached here, beside the steps. Engines that share a store must
// hash alike: the same algorithm and seed.
//
// Looking for blocks can take long, so that a thread does it: the first answer for a request is
// "not known yet". What a look-up found may be gone when it is loaded; then the load fails.
#ifndef TALLY_ENGINE_CONNECTOR_SHARED_STORAGE_CONNECTOR_H_
#define TALLY_ENGINE_CONNECTOR_SHARED_STORAGE_CONNECTOR_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/connector/block_store.h"
#include "engine/connector/io_pool.h"
#include "engine/core/kv_connector.h"

namespace tally {

struct SharedStorageMetadata final : ConnectorMetadata {
  struct Transfer {
    std::string request_id;
    std::vector<BlockId> gpu_blocks;
    std::vector<std::string> keys;  // one a block
  };
  std::vector<Transfer> load;      // in order of allocation
  std::vector<Transfer> store;     // in order of scheduling
  std::vector<std::string> flush;  // requests whose blocks must not be read any more; sorted

  nlohmann::json ToJson() const override;
};

class SharedStorageConnector final : public KvConnector {
 public:
  struct Options {
    std::size_t num_threads = 1;  // that look for blocks
    // A look-up that takes longer finds nothing.
    std::chrono::milliseconds lookup_timeout{5000};
  };
  SharedStorageConnector(std::shared_ptr<const BlockStore> store, const Options& options)
      : store_(std::move(store)), options_(options), io_(options.num_threads) {}

  absl::Status Bind(const Engine& engine) override;
  absl::StatusOr<ExternalMatch> GetNumNewMatchedTokens(RequestHandle request,
                                                       std::int32_t local) override;
  absl::Status UpdateStateAfterAlloc(RequestHandle request, std::int32_t external) override;
  absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> BuildConnectorMeta(
      const StepPlan& plan) override;
  absl::Status UpdateConnectorOutput(std::span<const std::string_view> finished_sending,
                                     std::span<const std::string_view> finished_recving) override;
  absl::StatusOr<FinishVerdict> RequestFinished(RequestHandle request, Seconds now) override;

 private:
  // How many blocks behind `first` are held; a thread answers it.
  struct LookUp {
    std::size_t first = 0;
    std::chrono::steady_clock::time_point begun;
    std::atomic<std::int64_t> held{-1};  // not known yet
    std::atomic<bool> wanted{true};
  };
  struct RequestState {
    std::int32_t local = 0;
    std::size_t next_stored = 0;
    std::shared_ptr<LookUp> look_up;
  };
  RequestState& Of(RequestHandle request);
  std::string KeyOf(RequestHandle request, std::size_t block) const;
  void Begin(RequestHandle request, RequestState& state, std::size_t first, std::size_t end);

  const std::shared_ptr<const BlockStore> store_;
  const Options options_;
  std::optional<Engine> engine_;
  std::int32_t block_size_ = 0;
  std::vector<RequestState> states_;  // by handle
  std::vector<SharedStorageMetadata::Transfer> loads_;
  absl::flat_hash_set<std::string> stored_;  // requests that the workers know as storing ones
  IoPool io_;                                // the last member: its jobs use the others
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_SHARED_STORAGE_CONNECTOR_H_
