// What stands before a block of KV in a store and says what it is. A reader believes nothing:
// magic, version, model, key, sizes and checksums must fit.
#ifndef TALLY_ENGINE_CONNECTOR_BLOCK_HEADER_H_
#define TALLY_ENGINE_CONNECTOR_BLOCK_HEADER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tally {

// Written as it lies in memory, little-endian.
struct BlockHeader {
  std::array<char, 8> magic = {'T', 'A', 'L', 'L', 'Y', 'K', 'V', '\n'};
  std::uint32_t version = 1;
  std::uint32_t header_bytes = 56;
  std::uint64_t block_bytes = 0;
  std::uint64_t model = 0;    // XXH3 of the fingerprint
  std::uint64_t key = 0;      // XXH3 of the key: a block under another's name is damaged
  std::uint64_t payload = 0;  // XXH3 of the bytes
  std::uint64_t header = 0;   // XXH3 of all before

  static BlockHeader Of(std::string_view model, std::string_view key,
                        std::span<const std::byte> block);
  // Whether this is the header of such a block.
  bool Fits(std::string_view model, std::string_view key, std::size_t block_size) const;
  bool FitsPayload(std::span<const std::byte> block) const;
};
static_assert(sizeof(BlockHeader) == 56);

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_BLOCK_HEADER_H_
