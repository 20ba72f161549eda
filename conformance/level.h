// How much of an engine a replay holds to the recording.
#ifndef TALLY_CONFORMANCE_LEVEL_H_
#define TALLY_CONFORMANCE_LEVEL_H_

#include <span>
#include <string_view>

namespace tally {

enum class Level {
  kAccounting = 1,  // what each request got and where its prompt's KV came from; token counters
  kDecisions = 2,   // who runs, how many tokens, in which order, what ends how
  kBlocks = 3,      // every block id, every queue, every statistic
};

// The level from which on a part of an answer is compared. `path` is the command's op, then keys
// and array places in decimal: {"schedule", "new", "0", "1"}. A container's own level says whether
// it is entered at all.
Level LevelOf(std::span<const std::string_view> path);

}  // namespace tally

#endif  // TALLY_CONFORMANCE_LEVEL_H_
