// How much of a workload's prompts an infinite prefix cache would hold: an upper bound on what any
// engine can take from a cache, known from the workload alone.
//
// A prompt's leading shared segments that an earlier prompt had too count with their whole length,
// in order of arrival; the first unknown one ends the count. This is the definition behind the
// figures that are published with the traces. Prompts of literal tokens count token by token.
#ifndef TALLY_ENGINE_WORKLOAD_PREFIX_BOUND_H_
#define TALLY_ENGINE_WORKLOAD_PREFIX_BOUND_H_

#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "engine/workload/workload.h"

namespace tally {

class PrefixBound {
 public:
  // Takes the next prompt in. O(segments); for literal tokens O(tokens). Keeps 8 bytes for each
  // distinct segment or token prefix.
  void Add(const WorkloadRequest& request);

  std::int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  std::int64_t num_reusable_tokens() const { return num_reusable_tokens_; }
  std::size_t num_distinct() const { return seen_.size(); }
  // Share of all prompt tokens, 0 to 1.
  double fraction() const;

 private:
  absl::flat_hash_set<std::uint64_t> seen_;
  std::int64_t num_prompt_tokens_ = 0;
  std::int64_t num_reusable_tokens_ = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_PREFIX_BOUND_H_
