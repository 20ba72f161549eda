// Where KV blocks are kept outside of an engine, by the hash of their content: a folder of files, a
// server. Engines that share one must hash alike and have the same model and layout.
//
// Used by several threads at once. A store that does not answer in time, or wrongly, answers a
// status: nothing here waits for ever, and no wrong byte is called right.
#ifndef TALLY_ENGINE_CONNECTOR_BLOCK_STORE_H_
#define TALLY_ENGINE_CONNECTOR_BLOCK_STORE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tally {

struct BlockRead {
  std::string_view key;
  std::span<std::byte> block;
  absl::Status status;
};
struct BlockWrite {
  std::string_view key;
  std::span<const std::byte> block;
  absl::Status status;
};

class BlockStore {
 public:
  virtual ~BlockStore() = default;

  virtual std::size_t block_bytes() const = 0;
  // Bytes after whose writing Trim is called; 0: never.
  virtual std::uint64_t trim_interval() const { return 0; }
  virtual void Trim() const {}

  // How many of the keys, from the first on, are held.
  virtual std::size_t HeldPrefix(std::span<const std::string> keys) const = 0;
  // Fills blocks, which may be changed even on failure: NotFound; DataLoss for what is not what it
  // should be; or what the store says.
  virtual void Read(std::span<BlockRead> reads) const = 0;
  // Writes the blocks that are not held.
  virtual void Write(std::span<BlockWrite> writes) const = 0;
  // Removes what nobody can use.
  virtual void Remove(std::string_view key) const = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_BLOCK_STORE_H_
