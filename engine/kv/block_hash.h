// What identifies a full block of KV: a hash that covers its tokens and everything before them.
#ifndef TALLY_ENGINE_KV_BLOCK_HASH_H_
#define TALLY_ENGINE_KV_BLOCK_HASH_H_

#include <array>
#include <cstdint>
#include <utility>

namespace tally {

// The identity of a block's whole prefix. Block ids depend only on the equality of these values
// (kv_cache.md KV-1), so 128 bits of any good hash do.
struct BlockHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  friend bool operator==(const BlockHash&, const BlockHash&) = default;
  // For Abseil's hash containers.
  template <typename H>
  friend H AbslHashValue(H state, const BlockHash& hash) {
    return H::combine(std::move(state), hash.low, hash.high);
  }
};

// The full digest of the sha256-over-CBOR algorithm, needed where hash values are visible outside
// (KV events, connectors). Its first 16 bytes, read as two little-endian words, are the block's
// BlockHash.
using BlockDigest = std::array<std::uint8_t, 32>;

// The key under which the prefix cache of one KV cache group knows a block (kv_cache.md POOL-15):
// the same content cached by two groups has two keys.
constexpr BlockHash GroupKey(BlockHash hash, std::uint32_t group) {
  return {hash.low ^ (group * 0x9E3779B97F4A7C15ULL), hash.high};
}

}  // namespace tally

#endif  // TALLY_ENGINE_KV_BLOCK_HASH_H_
