// A workload: requests with arrival times, prompts and output lengths, one at a time.
//
// A prompt is a recipe, not tokens: a list of segments, each the seed of a deterministic token
// stream and a length. Equal seeds give equal tokens, so prompts that begin with the same segments
// share that prefix, and a request that waits costs 16 bytes a segment however long its prompt is.
// The recipe is expanded when the request goes to the scheduler (token_expansion.h).
#ifndef TALLY_ENGINE_WORKLOAD_WORKLOAD_H_
#define TALLY_ENGINE_WORKLOAD_WORKLOAD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/types.h"

namespace tally {

// `num_tokens` tokens of the stream `seed`.
struct PromptSegment {
  std::uint64_t seed = 0;
  std::int32_t num_tokens = 0;

  friend bool operator==(const PromptSegment&, const PromptSegment&) = default;
};

struct WorkloadRequest {
  std::int64_t row = 0;  // line of the file, from 1; for a generated workload the request's number
  Seconds arrival = 0;   // from the start of the workload; 0 in a file without arrival times
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_output_tokens = 0;  // at least 1
  std::int64_t priority = 0;           // as in RequestSpec: lower goes first
  std::string cache_salt;
  // The prompt: segments, whose lengths add up to num_prompt_tokens, or else these very tokens.
  std::vector<PromptSegment> segments;
  std::vector<TokenId> tokens;
  // The leading segments that other prompts may begin with too; those behind are this prompt's own.
  std::int32_t num_shared_segments = 0;
  // The stream of the output's tokens.
  std::uint64_t output_seed = 0;
};

// Tokens of one request at most, in any file: twice the longest sequence that the engine can be
// configured for would not fit 32 bits.
inline constexpr std::int32_t kMaxRowTokens = 1 << 29;

class WorkloadSource {
 public:
  virtual ~WorkloadSource() = default;

  // What the workload is, for the report: "mooncake", "generated", ...
  virtual std::string_view format() const = 0;
  // False when the workload has lengths only, and the replayer has to make arrival times up.
  virtual bool has_arrivals() const = 0;
  // False when nothing is known about prefixes: no two prompts share any.
  virtual bool has_prefixes() const = 0;

  // The next request, in order of arrival; false at the end. After an error the source is at its
  // end. A broken row is InvalidArgument: its message names file, line, column, what is there and
  // what was expected.
  virtual absl::StatusOr<bool> Next(WorkloadRequest& request) = 0;

  // Broken rows that were passed over.
  virtual std::int64_t num_bad_rows() const { return 0; }
  // The part of the workload that was read, 0 to 1.
  virtual double fraction_read() const = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_WORKLOAD_H_
