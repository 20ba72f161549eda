// Token streams: a counter-based generator, so that any token of a stream is known without those
// before it, on every machine alike.
//
// Token i of stream s is 1 + Mix(s + i * odd) mod (kVocabulary - 1): a valid token that never is
// kEndOfSequence. Streams with different seeds agree on 16 tokens in a row with a chance of about
// 2^-272 each time, so blocks are equal exactly when seeds and places are.
#ifndef TALLY_ENGINE_WORKLOAD_TOKEN_EXPANSION_H_
#define TALLY_ENGINE_WORKLOAD_TOKEN_EXPANSION_H_

#include <cstdint>
#include <vector>

#include "engine/workload/workload.h"

namespace tally {

inline constexpr std::uint32_t kVocabulary = 1 << 17;  // about that of Llama 3
inline constexpr TokenId kEndOfSequence = 0;

// A bijection of 64 bits whose output looks random (the finaliser of SplitMix64).
constexpr std::uint64_t Mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

// What a stream is for: seeds of different kinds never meet by construction of the numbers.
enum class StreamKind : std::uint64_t { kSharedBlock = 1, kOwnPrompt, kOutput, kSystemPrompt };

// The seed of the stream number `id` of a kind. Workloads with different `workload_seed` share no
// stream.
constexpr std::uint64_t StreamSeed(StreamKind kind, std::uint64_t id, std::uint64_t workload_seed) {
  return Mix(Mix(id) +
             Mix(workload_seed + static_cast<std::uint64_t>(kind) * 0x9E3779B97F4A7C15ULL));
}

constexpr TokenId StreamToken(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t word = Mix(seed + (index + 1) * 0x9E3779B97F4A7C15ULL);
  return static_cast<TokenId>(1 + ((word >> 32) * (kVocabulary - 1) >> 32));
}

// Writes the prompt's tokens over `tokens`. O(prompt).
void ExpandPrompt(const WorkloadRequest& request, std::vector<TokenId>& tokens);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_TOKEN_EXPANSION_H_
