// The scheduler's side of remote prefill over a peer-to-peer transfer, as vLLM's NIXL connector
// decides it (connectors.md 1.8, 1.9).
//
// A prefill engine answers a request that asks for `do_remote_decode` with the place of its blocks
// and keeps them until they are read (finished_sending) or expire. A decode engine is given that
// place with `do_remote_prefill`, pulls the blocks that it does not have, and computes the last
// token itself. One transfer is tried per request.
#ifndef TALLY_ENGINE_CONNECTOR_NIXL_CONNECTOR_H_
#define TALLY_ENGINE_CONNECTOR_NIXL_CONNECTOR_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/core/kv_connector.h"

namespace tally {

using BlockIdGroups = std::vector<std::vector<BlockId>>;  // a list a KV cache group

struct NixlMetadata final : ConnectorMetadata {
  struct Receive {
    BlockIdGroups local;  // empty: only tell the peer that its blocks are not needed
    std::shared_ptr<const nlohmann::json> params;  // where to read: the request's parameters
  };
  std::map<std::string, Receive> recv;  // by request
  std::map<std::string, Seconds> send;  // when the blocks of a request expire unread
  std::set<std::string> in_batch;       // requests that will be read by a peer
  std::set<std::string> not_processed;  // of those, the ones that will not be after all

  nlohmann::json ToJson() const override;
};

class NixlConnector final : public KvConnector {
 public:
  struct Options {
    std::string engine_id = "engine-0";
    std::string host = "localhost";  // of the handshake's side channel
    int port = 5600;
    int tp_size = 1;             // workers of the engine
    Seconds send_timeout = 480;  // after which blocks that nobody read are given back
  };
  explicit NixlConnector(Options options) : options_(std::move(options)) {}
  NixlConnector() : NixlConnector(Options()) {}

  absl::Status Bind(const Engine& engine) override;
  absl::Status CheckParams(const nlohmann::json& params) const override;
  absl::StatusOr<ExternalMatch> GetNumNewMatchedTokens(RequestHandle request,
                                                       std::int32_t local) override;
  absl::Status UpdateStateAfterAlloc(RequestHandle request, std::int32_t external) override;
  absl::StatusOr<std::unique_ptr<const ConnectorMetadata>> BuildConnectorMeta(
      const StepPlan& plan) override;
  absl::StatusOr<FinishVerdict> RequestFinished(RequestHandle request, Seconds now) override;

 private:
  const nlohmann::json* Params(RequestHandle request) const;
  // Whether the request still wants its remote prefill pulled.
  bool WantsRemotePrefill(RequestHandle request) const;
  // Blocks whose content is in no cache, null ones left out.
  BlockIdGroups UnhashedBlocks(RequestHandle request) const;
  // The end of each group that a window can still see; all of it in other groups (1.9.9).
  void ClipToWindows(BlockIdGroups& groups) const;

  const Options options_;
  std::optional<Engine> engine_;
  std::vector<std::size_t> window_blocks_;     // a group; 0: no window
  absl::flat_hash_set<RequestHandle> pulled_;  // requests whose one transfer was tried
  NixlMetadata next_;                          // of the next step
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_NIXL_CONNECTOR_H_
