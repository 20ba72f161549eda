#include "engine/connector/block_header.h"

#include <xxhash.h>

#include <bit>
#include <cstddef>

namespace tally {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are written as they lie");

std::uint64_t Hash(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }
std::uint64_t HeaderHash(const BlockHeader& header) {
  return XXH3_64bits(&header, offsetof(BlockHeader, header));
}

}  // namespace

BlockHeader BlockHeader::Of(std::string_view model, std::string_view key,
                            std::span<const std::byte> block) {
  BlockHeader header;
  header.block_bytes = block.size();
  header.model = Hash(model);
  header.key = Hash(key);
  header.payload = XXH3_64bits(block.data(), block.size());
  header.header = HeaderHash(header);
  return header;
}

bool BlockHeader::Fits(std::string_view model_name, std::string_view key_name,
                       std::size_t block_size) const {
  const BlockHeader expected;
  return header == HeaderHash(*this) && magic == expected.magic && version == expected.version &&
         header_bytes == expected.header_bytes && block_bytes == block_size &&
         model == Hash(model_name) && key == Hash(key_name);
}

bool BlockHeader::FitsPayload(std::span<const std::byte> block) const {
  return XXH3_64bits(block.data(), block.size()) == payload;
}

}  // namespace tally
