// The scheduler's side of offloading to host memory, as vLLM's Offloading connector decides it
// (connectors.md section 3).
//
// Every full offloaded block that a request computes is stored; a request whose prefix is held in
// host memory but not on the GPU loads it beside the steps. One offloaded block is `block_size`
// tokens: one or several GPU blocks.
#ifndef TALLY_ENGINE_CONNECTOR_OFFLOADING_CONNECTOR_H_
#define TALLY_ENGINE_CONNECTOR_OFFLOADING_CONNECTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/connector/offload_manager.h"
#include "engine/core/kv_connector.h"

namespace tally {

struct OffloadingMetadata final : ConnectorMetadata {
  // One request's copy between GPU blocks and host slots. A slot holds several GPU blocks when
  // offloaded blocks are larger; a load may begin in the middle of its first slot.
  struct Transfer {
    std::string request_id;
    std::vector<BlockId> gpu_blocks;
    std::vector<std::uint32_t> host_slots;
    std::uint32_t first_gpu_block = 0;  // place of gpu_blocks[0] in the request's block table
  };
  std::vector<Transfer> load;      // in order of allocation
  std::vector<Transfer> store;     // in order of scheduling: new, running, resumed requests
  std::vector<std::string> flush;  // requests whose stores must end before the step; sorted

  nlohmann::json ToJson() const override;
};

class OffloadingConnector final : public KvConnector {
 public:
  struct Options {
    std::uint32_t num_cpu_blocks = 0;  // offloaded blocks that host memory holds
    std::int32_t block_size = 16;      // tokens of one; a multiple of the GPU block size
    EvictionPolicy eviction = EvictionPolicy::kLru;
  };
  explicit OffloadingConnector(const Options& options)
      : options_(options), manager_(options.eviction, options.num_cpu_blocks) {}

  absl::Status Bind(const Engine& engine) override;
  absl::StatusOr<ExternalMatch> GetNumNewMatchedTokens(RequestHandle request,
                                                       std::int32_t local) override;
  absl::Status UpdateStateAfterAlloc(RequestHandle request, std::int32_t external) override;
  absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> BuildConnectorMeta(
      const StepPlan& plan) override;
  absl::Status UpdateConnectorOutput(std::span<const std::string_view> finished_sending,
                                     std::span<const std::string_view> finished_recving) override;
  absl::StatusOr<FinishVerdict> RequestFinished(RequestHandle request, Seconds now) override;
  void TakeEvents(std::vector<KvEvent>& events) override;

  const OffloadManager& manager() const { return manager_; }

 private:
  struct RequestState {
    std::int32_t local = 0;        // tokens that were cached on the GPU at the last look-up
    std::int32_t next_stored = 0;  // offloaded block from which on blocks are to be stored
    std::vector<BlockHash> keys;   // of its full offloaded blocks
    // Its GPU blocks as it was given them: entries that a window dropped since are still here.
    std::vector<BlockId> blocks;
  };
  RequestState& Of(RequestHandle request);
  // Brings the keys up to the request's block hashes.
  void UpdateKeys(RequestHandle request, RequestState& state);
  void Store(const ScheduledRequest& entry, const StepPlan& plan, OffloadingMetadata& metadata);
  // Tells of keys that came to or left host memory.
  void TellStored(std::vector<BlockHash> keys);
  void TellRemoved(const std::vector<BlockHash>& keys);

  const Options options_;
  OffloadManager manager_;
  std::optional<Engine> engine_;
  std::int32_t gpu_block_size_ = 0;
  std::size_t factor_ = 1;            // GPU blocks an offloaded block
  std::vector<RequestState> states_;  // by handle
  std::vector<OffloadingMetadata::Transfer> loads_;
  absl::flat_hash_map<std::string, std::vector<BlockHash>> being_stored_;  // by request
  absl::flat_hash_map<std::string, std::vector<BlockHash>> being_loaded_;
  absl::flat_hash_set<BlockHash> keys_being_loaded_;
  // For events: what the hashes of the keys in host memory are in full.
  absl::flat_hash_map<BlockHash, BlockDigest> digests_;
  std::vector<KvEvent> events_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_OFFLOADING_CONNECTOR_H_
