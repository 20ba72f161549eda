// KV events: what entered and left the prefix cache, for routers that follow the caches of many
// engines (kv_cache.md 1.9). Hashes are those of sha256 over CBOR, which every engine computes
// alike.
#ifndef TALLY_ENGINE_KV_KV_EVENTS_H_
#define TALLY_ENGINE_KV_KV_EVENTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/types.h"
#include "engine/kv/block_hasher.h"

namespace tally {

struct KvEvent {
  enum class Kind : std::uint8_t { kStored, kRemoved, kCleared };

  // An extra key of a stored block; `offset` is there for items.
  struct Key {
    std::string text;
    std::optional<std::int32_t> offset;
  };

  Kind kind = Kind::kCleared;
  std::vector<std::string>
      hashes;  // 32 bytes each; of a block larger than a hash several, joined (HASH-10)
  std::optional<std::string>
      parent;                   // of the first stored block; absent at the start of a sequence
  std::vector<TokenId> tokens;  // of all stored blocks, null ones included
  std::int32_t block_size = 0;
  std::int32_t lora_id = 0;  // 0: none
  std::string lora_name;
  std::vector<std::vector<Key>> extra_keys;  // one list a stored block
  std::uint32_t group = 0;
  std::string medium = "GPU";
};

// What a stored event tells about a request, asked from who knows it.
class BlockContents {
 public:
  virtual ~BlockContents() = default;
  virtual const BlockHashChain& Hashes(RequestHandle request) const = 0;
  virtual TokenSequence Tokens(RequestHandle request) const = 0;
  virtual BlockExtraKeys ExtraKeys(RequestHandle request) const = 0;
  virtual std::int32_t LoraId(RequestHandle request) const = 0;
};

class KvEventLog {
 public:
  // `contents` outlives the log; `hash_block_size` tokens a hash.
  KvEventLog(const BlockContents& contents, std::uint32_t num_blocks, std::int32_t hash_block_size)
      : contents_(contents), stored_(num_blocks), hash_block_size_(hash_block_size) {}

  // Blocks first .. end-1 of a request's table were registered. One event, also when all of them
  // are null blocks (EVT-1).
  void Stored(RequestHandle request, std::uint32_t group, std::int32_t block_size,
              std::span<const BlockId> table, std::size_t first, std::size_t end);
  // A registered block lost its content.
  void Removed(BlockId block);
  void Cleared();

  // Moves the events since the last call out, in order of the operations (EVT-3).
  void Take(std::vector<KvEvent>& events);

 private:
  struct StoredBlock {
    std::string hash;
    std::uint32_t group = 0;
  };

  // The joined digests of one block of `block_size` tokens.
  std::string HashOf(const BlockHashChain& chain, std::size_t block, std::int32_t block_size) const;

  const BlockContents& contents_;
  std::vector<StoredBlock> stored_;  // by block id
  std::int32_t hash_block_size_;
  std::vector<KvEvent> events_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_KV_EVENTS_H_
