#include "engine/core/repetition.h"

#include <algorithm>

namespace tally {

bool EndsInRepetition(std::span<const TokenId> output, const RepetitionDetection& parameters) {
  const std::int64_t smallest = std::max(parameters.min_pattern_size, 1);
  const std::int64_t count = parameters.min_count;
  if (parameters.max_pattern_size <= 0 || count < 2) return false;
  const auto length = static_cast<std::int64_t>(output.size());
  for (std::int64_t size = smallest; size <= parameters.max_pattern_size; ++size) {
    if (size * count > length) return false;  // larger groups do not fit either
    // Equal groups side by side: the tail equals itself shifted by one group.
    const auto tail = output.last(static_cast<std::size_t>(size * (count - 1)));
    const auto shifted = output.last(static_cast<std::size_t>(size * count)).first(tail.size());
    if (std::equal(tail.rbegin(), tail.rend(), shifted.rbegin())) return true;
  }
  return false;
}

}  // namespace tally
