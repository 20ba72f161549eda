// What KV is in tests: every token's bytes are a function of all tokens up to it, of its place and
// of the layer, so that a block in the wrong place, of another request or half written is seen.
#ifndef TALLY_ENGINE_CONNECTOR_KV_CONTENT_H_
#define TALLY_ENGINE_CONNECTOR_KV_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/types.h"
#include "engine/kv/block_hasher.h"
#include "kernels/device/device.h"

namespace tally {

class KvContent {
 public:
  KvContent(std::int32_t block_size, std::int32_t num_layers)
      : block_size_(static_cast<std::size_t>(block_size)),
        num_layers_(static_cast<std::size_t>(num_layers)) {}

  // Eight bytes a token and layer.
  std::size_t block_bytes() const { return block_size_ * num_layers_ * sizeof(std::uint64_t); }

  // For each of the first `count` tokens what identifies it and all before it.
  static std::vector<std::uint64_t> Prefixes(const TokenSequence& tokens, std::size_t count,
                                             std::string_view salt = "");

  // Writes the bytes of tokens begin .. prefixes.size()-1 into the blocks of a table.
  void Write(const KvArena& arena, std::span<const BlockId> table,
             std::span<const std::uint64_t> prefixes, std::size_t begin) const;
  // The first token whose bytes are not as they should be; null blocks are passed over.
  std::optional<std::size_t> FindWrong(const KvArena& arena, std::span<const BlockId> table,
                                       std::span<const std::uint64_t> prefixes) const;

 private:
  std::byte* Place(const KvArena& arena, BlockId block, std::size_t layer,
                   std::size_t position) const {
    return arena.block(Index(block)) + (layer * block_size_ + position) * sizeof(std::uint64_t);
  }

  std::size_t block_size_;
  std::size_t num_layers_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_KV_CONTENT_H_
