// A Redis server as a store of KV blocks that engines share (connectors.md 7.4).
//
// A block is the value "kv:<model>:<key>": a header (block_header.h) and the bytes. Commands of one
// call are pipelined. The server may be down, stopped, restarted, full or lie: a call answers a
// status for each block, and a value whose header or checksum does not fit is DataLoss. After a
// connection failed, no other is tried for a while, so that a dead server costs nothing.
//
// Limit: the time-outs are hiredis', of one system call each. A server that sends a byte now and
// then holds a call, and a shutdown that waits for it, for as long as it goes on.
#ifndef TALLY_ENGINE_CONNECTOR_REDIS_STORE_H_
#define TALLY_ENGINE_CONNECTOR_REDIS_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/connector/block_store.h"

struct redisContext;

namespace tally {

class RedisStore final : public BlockStore {
 public:
  struct Options {
    std::string unix_socket;  // path; empty: host and port
    std::string host = "127.0.0.1";
    int port = 6379;
    std::string model;                         // fingerprint: of weights, data type, layout
    std::size_t block_bytes = 0;               // of one block of KV
    std::chrono::seconds time_to_live{0};      // after which a block is forgotten; 0: never
    std::size_t max_value_bytes = 512U << 20;  // of header and block; Redis takes no more
    std::chrono::milliseconds connect_timeout{500};
    std::chrono::milliseconds command_timeout{2000};  // for the answers to one call's commands
    std::chrono::milliseconds retry_after{1000};      // a failed connection
  };
  explicit RedisStore(Options options);
  ~RedisStore() override;

  std::size_t block_bytes() const override { return options_.block_bytes; }
  std::size_t HeldPrefix(std::span<const std::string> keys) const override;
  void Read(std::span<BlockRead> reads) const override;
  void Write(std::span<BlockWrite> writes) const override;
  void Remove(std::string_view key) const override;

  // The name of a block's value.
  std::string NameOf(std::string_view key) const;

 private:
  struct Close {
    void operator()(redisContext* connection) const;
  };
  using Connection = std::unique_ptr<redisContext, Close>;
  absl::StatusOr<Connection> Acquire() const;
  void Release(Connection connection) const;
  void Failed() const;

  const Options options_;
  const std::string prefix_;
  mutable std::mutex mutex_;
  mutable std::vector<Connection> idle_;
  mutable std::chrono::steady_clock::time_point retry_at_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_REDIS_STORE_H_
