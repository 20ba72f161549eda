// Detects outputs that repeat themselves (scheduler.md STOP-7).
#ifndef TALLY_ENGINE_CORE_REPETITION_H_
#define TALLY_ENGINE_CORE_REPETITION_H_

#include <span>

#include "engine/base/types.h"
#include "engine/core/request.h"

namespace tally {

// Whether `output` ends in `min_count` equal groups of some size from min_pattern_size (at least 1)
// to max_pattern_size. Off when max_pattern_size <= 0, min_count < 2 or the sizes are out of order.
// O(sizes * size * count), usually one comparison a size.
bool EndsInRepetition(std::span<const TokenId> output, const RepetitionDetection& parameters);

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_REPETITION_H_
