// Hashes full blocks of tokens into a chain, so that equal hashes mean equal prefixes (kv_cache.md
// section 2).
//
// Two algorithms. XXH3-128 with a seed is the default: it is what a scheduler needs, since block
// ids depend on the equality of hashes only. SHA-256 over canonical CBOR gives the values of vLLM's
// `sha256_cbor` byte for byte, for KV events and for stores that are shared with it.
#ifndef TALLY_ENGINE_KV_BLOCK_HASHER_H_
#define TALLY_ENGINE_KV_BLOCK_HASHER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/types.h"
#include "engine/kv/block_hash.h"

namespace tally {

enum class HashAlgorithm : std::uint8_t { kXxh3, kSha256Cbor };

// An input of another modality (an image, say) that stands for placeholder tokens of the prompt.
struct MultimodalItem {
  std::string hash;         // identifies the content
  std::int32_t offset = 0;  // of its first placeholder token
  std::int32_t length = 0;  // placeholder tokens, one embedding each

  std::int32_t end() const { return offset + length; }
};

// What enters the block hashes of a request beside its tokens (HASH-3). Empty strings are absent.
struct BlockExtraKeys {
  std::string_view lora_name;  // in every block
  std::span<const MultimodalItem>
      items;                    // in the blocks that they overlap; in order of their offsets
  std::string_view cache_salt;  // only in the block that starts at token 0; the chain carries it on
};

// One extra key of one block: a text, for an item with its offset from the block's first token.
struct ExtraKey {
  // Upstream's hashes do not tell the kinds apart (DEF-11); XXH3 ones do.
  enum class Kind : std::uint8_t { kLora = 1, kItem, kSalt };
  std::string_view text;
  std::int32_t offset = 0;  // of an item
  Kind kind = Kind::kLora;
};

// Appends the extra keys of the block of tokens begin .. end-1. `item` is the first item that may
// overlap it and moves on with the blocks (HASH-4).
void AppendExtraKeys(const BlockExtraKeys& extra, std::int64_t begin, std::int64_t end,
                     std::size_t& item, std::vector<ExtraKey>& keys);

// A request's tokens as the scheduler holds them: the prompt, then what was sampled.
struct TokenSequence {
  std::span<const TokenId> prompt;
  std::span<const TokenId> output;

  std::size_t size() const { return prompt.size() + output.size(); }
};

// The hashes of a request's full blocks, oldest first. `digests` is parallel to `hashes` under
// kSha256Cbor and empty otherwise. The chain only grows (HASH-6); Clear keeps the capacity for the
// next request.
struct BlockHashChain {
  std::vector<BlockHash> hashes;
  std::vector<BlockDigest> digests;

  void Clear() {
    hashes.clear();
    digests.clear();
  }
};

class BlockHasher {
 public:
  // `block_size` tokens a hash. `seed` keeps hash values of different deployments apart; under
  // kSha256Cbor the root of every chain is the SHA-256 of the CBOR text of `cbor_seed` (HASH-8; "0"
  // in recordings).
  BlockHasher(HashAlgorithm algorithm, std::int32_t block_size, std::uint64_t seed = 0,
              std::string_view cbor_seed = "0");

  HashAlgorithm algorithm() const { return algorithm_; }
  std::int32_t block_size() const { return block_size_; }

  // Appends the hashes of all full blocks of `tokens` that the chain lacks. O(tokens of these
  // blocks). After the first call only the last item is thought to reach into new blocks (HASH-5).
  void Extend(const TokenSequence& tokens, const BlockExtraKeys& extra, BlockHashChain& chain);

  // The bytes that kSha256Cbor digests for one block; `extra` holds the block's own keys (HASH-11).
  static std::string CborEncoding(const BlockDigest& parent, std::span<const std::int64_t> tokens,
                                  std::span<const ExtraKey> extra);
  static BlockDigest Sha256(std::string_view bytes);
  const BlockDigest& root() const { return root_; }

 private:
  void AppendXxh3(std::span<const TokenId> tokens, BlockHashChain& chain);
  void AppendSha256(std::span<const TokenId> tokens, BlockHashChain& chain);

  HashAlgorithm algorithm_;
  std::int32_t block_size_;
  std::uint64_t seed_;
  BlockDigest root_;
  std::vector<TokenId> straddling_;  // a block that holds the prompt's end and first outputs
  std::vector<unsigned char> buffer_;
  std::vector<ExtraKey> keys_;  // of the block being hashed
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_BLOCK_HASHER_H_
