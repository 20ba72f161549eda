// The identifiers that every part of the engine shares. Each is a type of its own, so that a block
// id never passes for a request or a token; the underlying integers are what kernels and traces
// use.
#ifndef TALLY_ENGINE_BASE_TYPES_H_
#define TALLY_ENGINE_BASE_TYPES_H_

#include <cstdint>
#include <limits>

namespace tally {

// A vocabulary entry. Valid tokens are never negative; speculative placeholders are
// kDraftPlaceholder.
using TokenId = std::int32_t;
inline constexpr TokenId kNoToken = -1;
inline constexpr TokenId kDraftPlaceholder = -1;

// Virtual or wall time in seconds. The engine never reads a clock: every call that needs one is
// given it.
using Seconds = double;

// A KV cache block. Block 0 is the null block: it stands for "no KV here" and is never handed out.
enum class BlockId : std::uint32_t {};
inline constexpr BlockId kNullBlock{0};

constexpr std::uint32_t Index(BlockId block) { return static_cast<std::uint32_t>(block); }

// A request's place in the request table, stable from AddRequest until the request was reported
// finished and no step that scheduled it is outstanding; reused afterwards.
enum class RequestHandle : std::uint32_t {};
inline constexpr RequestHandle kNoRequest{std::numeric_limits<std::uint32_t>::max()};

constexpr std::uint32_t Index(RequestHandle request) { return static_cast<std::uint32_t>(request); }

// Ceiling of numerator / denominator, for numerator >= 0 and denominator > 0.
constexpr std::int32_t CeilDiv(std::int32_t numerator, std::int32_t denominator) {
  return static_cast<std::int32_t>((static_cast<std::int64_t>(numerator) + denominator - 1) /
                                   denominator);
}

}  // namespace tally

#endif  // TALLY_ENGINE_BASE_TYPES_H_
