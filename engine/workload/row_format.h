// One format of workload files: how a line becomes a request.
//
// A format sees its file from the first line on and may keep what it needs between lines (a header,
// the time of the first row). It never sees a whole file.
#ifndef TALLY_ENGINE_WORKLOAD_ROW_FORMAT_H_
#define TALLY_ENGINE_WORKLOAD_ROW_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/workload/workload.h"

namespace tally {

// What is wrong with a line.
struct RowError {
  std::size_t column = 1;  // of the line, from 1, in bytes
  std::string message;     // "output_length: -3, wanted an integer from 0 to 536870912"
};

struct FormatOptions {
  // Tokens a hash id stands for; absent: the format's own number.
  std::optional<std::int32_t> tokens_per_hash;
};

// A piece of a file as a message shows it: short, printable, without what surrounds it.
std::string Excerpt(std::string_view text);

class RowFormat {
 public:
  virtual ~RowFormat() = default;

  virtual std::string_view name() const = 0;
  virtual bool has_arrivals() const { return true; }
  virtual bool has_prefixes() const { return true; }

  // Fills `request`, which is fresh but for its row, and says true; or says false for a line that
  // holds no request.
  struct Outcome {
    bool is_request = false;
    std::optional<RowError> error;
  };
  virtual Outcome Parse(std::string_view line, WorkloadRequest& request) = 0;

 protected:
  static Outcome Request() { return {true, std::nullopt}; }
  static Outcome NoRequest() { return {false, std::nullopt}; }
  static Outcome Broken(RowError error) { return {false, std::move(error)}; }
};

// Sets the prompt of a request whose prefix is known by one hash id for each `tokens_per_hash`
// tokens: `ids` are seeds of streams. Tokens behind the last id are the request's own. False when
// there are neither floor nor ceil(num_prompt_tokens / tokens_per_hash) of them.
bool SetHashedPrompt(const std::vector<std::uint64_t>& ids, std::int32_t tokens_per_hash,
                     WorkloadRequest& request);

// Sets a prompt that shares nothing.
void SetOwnPrompt(WorkloadRequest& request);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_ROW_FORMAT_H_
