#include "engine/connector/kv_content.h"

#include <cstring>

#include "engine/base/check.h"

namespace tally {
namespace {

std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15ULL + b + 0x632BE59BD9B4E019ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

std::uint64_t BytesOf(std::uint64_t prefix, std::size_t layer) {
  return Mix(prefix, layer) | 1;  // never the zeros of a fresh arena
}

}  // namespace

std::vector<std::uint64_t> KvContent::Prefixes(const TokenSequence& tokens, std::size_t count,
                                               std::string_view salt) {
  TALLY_CHECK(count <= tokens.size(), "%zu of %zu tokens", count, tokens.size());
  std::vector<std::uint64_t> prefixes(count);
  std::uint64_t prefix = 0;
  for (const char c : salt) prefix = Mix(prefix, static_cast<std::uint8_t>(c));
  for (std::size_t i = 0; i < count; ++i) {
    const TokenId token =
        i < tokens.prompt.size() ? tokens.prompt[i] : tokens.output[i - tokens.prompt.size()];
    prefix = Mix(prefix, static_cast<std::uint64_t>(token));
    prefixes[i] = prefix;
  }
  return prefixes;
}

void KvContent::Write(const KvArena& arena, std::span<const BlockId> table,
                      std::span<const std::uint64_t> prefixes, std::size_t begin) const {
  for (std::size_t token = begin; token < prefixes.size(); ++token) {
    const BlockId block = table[token / block_size_];
    TALLY_CHECK(block != kNullBlock, "token %zu is computed into the null block", token);
    for (std::size_t layer = 0; layer < num_layers_; ++layer) {
      const std::uint64_t bytes = BytesOf(prefixes[token], layer);
      std::memcpy(Place(arena, block, layer, token % block_size_), &bytes, sizeof bytes);
    }
  }
}

std::optional<std::size_t> KvContent::FindWrong(const KvArena& arena,
                                                std::span<const BlockId> table,
                                                std::span<const std::uint64_t> prefixes) const {
  for (std::size_t token = 0; token < prefixes.size(); ++token) {
    const BlockId block = table[token / block_size_];
    if (block == kNullBlock) continue;
    for (std::size_t layer = 0; layer < num_layers_; ++layer) {
      const std::uint64_t bytes = BytesOf(prefixes[token], layer);
      if (std::memcmp(Place(arena, block, layer, token % block_size_), &bytes, sizeof bytes) != 0)
        return token;
    }
  }
  return std::nullopt;
}

}  // namespace tally
