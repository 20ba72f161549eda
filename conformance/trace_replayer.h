// Replays recorded traces against an engine and reports where it first answers otherwise.
#ifndef TALLY_CONFORMANCE_TRACE_REPLAYER_H_
#define TALLY_CONFORMANCE_TRACE_REPLAYER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "conformance/json_compare.h"
#include "conformance/trace_engine.h"
#include "conformance/trace_reader.h"
#include "simdjson.h"

namespace tally {

// Where an engine left the recording.
struct TraceDifference {
  std::string trace;
  std::int64_t line = 0;  // of the file
  std::int64_t step = 0;  // commands of the trace so far, this one included
  std::string op;
  Difference difference;
  // Around it, shortened.
  std::string command;
  std::string expected_answer;
  std::string actual_answer;
  std::string state;  // the engine's answer to `state` afterwards

  // One line a person understands; `with_surroundings` adds indented lines for the rest.
  std::string Describe(bool with_surroundings) const;
};

class TraceReplayer {
 public:
  TraceReplayer(TraceEngine& engine, const CompareOptions& options)
      : engine_(engine), comparer_(options) {}

  // Configures the engine for the trace that the reader has just begun, and replays its steps up to
  // the first difference. An engine that refuses the configuration differs at step 0. A status only
  // for a faulty file or a lost engine.
  absl::StatusOr<std::optional<TraceDifference>> Replay(const TraceHeader& header,
                                                        TraceReader& reader);

  // Over all traces so far.
  const CompareCount& count() const { return comparer_.count(); }
  std::int64_t num_steps() const { return num_steps_; }

 private:
  absl::StatusOr<std::optional<TraceDifference>> ReplayStep(const TraceHeader& header,
                                                            const TraceStep& step);

  TraceEngine& engine_;
  JsonComparer comparer_;
  std::int64_t num_steps_ = 0;
  std::int64_t steps_of_trace_ = 0;
  simdjson::dom::parser command_parser_;
  simdjson::dom::parser expected_parser_;
  simdjson::dom::parser actual_parser_;
};

}  // namespace tally

#endif  // TALLY_CONFORMANCE_TRACE_REPLAYER_H_
