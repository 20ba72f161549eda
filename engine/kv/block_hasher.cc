#include "engine/kv/block_hasher.h"

#include <openssl/sha.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"

namespace tally {
namespace {

// Canonical CBOR (RFC 8949, core deterministic encoding), as far as block hashes need it.
class CborWriter {
 public:
  void Array(std::uint64_t length) { Head(4, length); }
  void Bytes(std::span<const std::uint8_t> bytes) {
    Head(2, bytes.size());
    out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void Text(std::string_view text) {
    Head(3, text.size());
    out_.append(text);
  }
  void Integer(std::int64_t value) {
    if (value >= 0) {
      Head(0, static_cast<std::uint64_t>(value));
    } else {
      Head(1, static_cast<std::uint64_t>(-1 - value));
    }
  }
  void Null() { out_.push_back(static_cast<char>(0xF6)); }

  std::string Take() { return std::move(out_); }

 private:
  void Head(unsigned major, std::uint64_t value) {
    const auto type = static_cast<unsigned char>(major << 5);
    if (value < 24) {
      Byte(type | value);
      return;
    }
    const unsigned log_bytes = value <= 0xFF         ? 0
                               : value <= 0xFFFF     ? 1
                               : value <= 0xFFFFFFFF ? 2
                                                     : 3;
    Byte(type | (24U + log_bytes));
    for (int shift = (8 << log_bytes) - 8; shift >= 0; shift -= 8) Byte(value >> shift);
  }
  void Byte(std::uint64_t value) { out_.push_back(static_cast<char>(value & 0xFF)); }

  std::string out_;
};

BlockHash FirstBytes(const BlockDigest& digest) {
  BlockHash hash;
  std::memcpy(&hash.low, digest.data(), sizeof hash.low);
  std::memcpy(&hash.high, digest.data() + sizeof hash.low, sizeof hash.high);
  return hash;
}

}  // namespace

void AppendExtraKeys(const BlockExtraKeys& extra, std::int64_t begin, std::int64_t end,
                     std::size_t& item, std::vector<ExtraKey>& keys) {
  if (!extra.lora_name.empty()) keys.push_back({extra.lora_name, 0, ExtraKey::Kind::kLora});
  if (!extra.items.empty() && extra.items.back().end() > begin) {
    for (; item < extra.items.size() && extra.items[item].offset < end; ++item) {
      const MultimodalItem& overlapping = extra.items[item];
      if (begin >= overlapping.end()) continue;
      keys.push_back({overlapping.hash, static_cast<std::int32_t>(overlapping.offset - begin),
                      ExtraKey::Kind::kItem});
      if (end < overlapping.end()) break;  // the next block has it too
    }
  }
  if (begin == 0 && !extra.cache_salt.empty())
    keys.push_back({extra.cache_salt, 0, ExtraKey::Kind::kSalt});
}

BlockHasher::BlockHasher(HashAlgorithm algorithm, std::int32_t block_size, std::uint64_t seed,
                         std::string_view cbor_seed)
    : algorithm_(algorithm), block_size_(block_size), seed_(seed) {
  TALLY_CHECK(block_size > 0, "block size %d", block_size);
  CborWriter writer;
  writer.Text(cbor_seed);
  root_ = Sha256(writer.Take());
  straddling_.resize(static_cast<std::size_t>(block_size));
}

BlockDigest BlockHasher::Sha256(std::string_view bytes) {
  BlockDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

std::string BlockHasher::CborEncoding(const BlockDigest& parent,
                                      std::span<const std::int64_t> tokens,
                                      std::span<const ExtraKey> extra) {
  CborWriter writer;
  writer.Array(3);
  writer.Bytes(parent);
  writer.Array(tokens.size());
  for (std::int64_t token : tokens) writer.Integer(token);
  if (extra.empty()) {
    writer.Null();
  } else {
    writer.Array(extra.size());
    for (const ExtraKey& key : extra) {
      if (key.kind == ExtraKey::Kind::kItem) writer.Array(2);
      writer.Text(key.text);
      if (key.kind == ExtraKey::Kind::kItem) writer.Integer(key.offset);
    }
  }
  return writer.Take();
}

void BlockHasher::Extend(const TokenSequence& tokens, const BlockExtraKeys& extra,
                         BlockHashChain& chain) {
  const auto size = static_cast<std::size_t>(block_size_);
  const std::size_t full_blocks = tokens.size() / size;
  if (full_blocks > chain.hashes.capacity())
    chain.hashes.reserve(std::max(full_blocks, 2 * chain.hashes.capacity()));
  std::size_t item = chain.hashes.empty() || extra.items.empty() ? 0 : extra.items.size() - 1;
  for (std::size_t block = chain.hashes.size(); block < full_blocks; ++block) {
    const std::size_t begin = block * size;
    keys_.clear();
    AppendExtraKeys(extra, static_cast<std::int64_t>(begin),
                    static_cast<std::int64_t>(begin + size), item, keys_);
    std::span<const TokenId> content;
    if (begin + size <= tokens.prompt.size()) {
      content = tokens.prompt.subspan(begin, size);
    } else if (begin >= tokens.prompt.size()) {
      content = tokens.output.subspan(begin - tokens.prompt.size(), size);
    } else {
      const std::span<const TokenId> head = tokens.prompt.subspan(begin);
      auto rest = std::copy(head.begin(), head.end(), straddling_.begin());
      std::copy_n(tokens.output.begin(), size - head.size(), rest);
      content = straddling_;
    }
    if (algorithm_ == HashAlgorithm::kXxh3) {
      AppendXxh3(content, chain);
    } else {
      AppendSha256(content, chain);
    }
  }
}

void BlockHasher::AppendXxh3(std::span<const TokenId> tokens, BlockHashChain& chain) {
  const BlockHash parent = chain.hashes.empty() ? BlockHash{} : chain.hashes.back();
  // Parent, tokens, then the extra keys, each with its kind and length: a block has a fixed number
  // of tokens, so no two different inputs give the same bytes.
  buffer_.clear();
  const auto append = [this](const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const unsigned char*>(data);
    buffer_.insert(buffer_.end(), begin, begin + bytes);
  };
  append(&parent, sizeof parent);
  append(tokens.data(), tokens.size_bytes());
  for (const ExtraKey& key : keys_) {
    const std::uint32_t head[] = {static_cast<std::uint32_t>(key.kind),
                                  static_cast<std::uint32_t>(key.offset),
                                  static_cast<std::uint32_t>(key.text.size())};
    append(head, sizeof head);
    append(key.text.data(), key.text.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_withSeed(buffer_.data(), buffer_.size(), seed_);
  chain.hashes.push_back({hash.low64, hash.high64});
}

void BlockHasher::AppendSha256(std::span<const TokenId> tokens, BlockHashChain& chain) {
  const std::vector<std::int64_t> wide(tokens.begin(), tokens.end());
  const BlockDigest digest =
      Sha256(CborEncoding(chain.digests.empty() ? root_ : chain.digests.back(), wide, keys_));
  chain.digests.push_back(digest);
  chain.hashes.push_back(FirstBytes(digest));
}

}  // namespace tally
