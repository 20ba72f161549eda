#include "conformance/trace_replayer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/protocol/json_writer.h"

namespace tally {
namespace {

std::string Cut(std::string_view text) {
  constexpr std::size_t kMostShown = 800;
  return text.size() <= kMostShown ? std::string(text)
                                   : absl::StrCat(std::string(text.substr(0, kMostShown)), "...");
}

absl::Status NotJson(std::string_view what, simdjson::error_code error, std::string_view text) {
  return absl::DataLossError(
      absl::StrCat(std::string(what), ": ", simdjson::error_message(error), ": ", Cut(text)));
}

}  // namespace

std::string TraceDifference::Describe(bool with_surroundings) const {
  std::string text =
      absl::StrCat(trace, " line ", line, " step ", step, " ", op, ": ", difference.path,
                   ": expected ", difference.expected, ", actual ", difference.actual);
  if (with_surroundings) {
    absl::StrAppend(&text, "\n  command:  ", command, "\n  expected: ", expected_answer,
                    "\n  actual:   ", actual_answer, "\n  state:    ", state);
  }
  return text;
}

absl::StatusOr<std::optional<TraceDifference>> TraceReplayer::Replay(const TraceHeader& header,
                                                                     TraceReader& reader) {
  std::string configure;
  JsonWriter(configure)
      .BeginObject()
      .Key("op")
      .String("configure")
      .Key("config")
      .Raw(header.config)
      .EndObject();
  absl::StatusOr<std::string_view> answer = engine_.Answer(configure);
  if (!answer.ok()) return answer.status();
  simdjson::dom::element parsed;
  if (const auto error = actual_parser_.parse(answer->data(), answer->size()).get(parsed)) {
    return NotJson("answer to configure", error, *answer);
  }
  if (parsed.at_key("engine").error() != simdjson::SUCCESS) {
    TraceDifference difference;
    difference.trace = header.name;
    difference.op = "configure";
    difference.difference = {"engine", "its name", Cut(*answer)};
    difference.command = Cut(configure);
    return difference;
  }

  steps_of_trace_ = 0;
  TraceStep step;
  while (true) {
    const absl::StatusOr<bool> more = reader.NextStep(step);
    if (!more.ok()) return more.status();
    if (!*more) return std::nullopt;
    absl::StatusOr<std::optional<TraceDifference>> difference = ReplayStep(header, step);
    if (!difference.ok() || difference->has_value()) return difference;
  }
}

absl::StatusOr<std::optional<TraceDifference>> TraceReplayer::ReplayStep(const TraceHeader& header,
                                                                         const TraceStep& step) {
  ++num_steps_;
  ++steps_of_trace_;
  simdjson::dom::element command;
  simdjson::dom::element expected;
  simdjson::dom::element actual;
  if (const auto error = command_parser_.parse(step.in).get(command))
    return NotJson("in", error, step.in);
  if (const auto error = expected_parser_.parse(step.out).get(expected))
    return NotJson("out", error, step.out);
  std::string_view op;
  if (command.at_key("op").get(op) != simdjson::SUCCESS) {
    return absl::DataLossError(
        absl::StrCat(header.name, " line ", step.line, ": in.op: wanted a string"));
  }
  const absl::StatusOr<std::string_view> answer = engine_.Answer(step.in);
  if (!answer.ok()) return answer.status();
  if (const auto error = actual_parser_.parse(answer->data(), answer->size()).get(actual)) {
    return NotJson("answer", error, *answer);
  }

  std::optional<Difference> difference;
  if (std::string_view kind; actual.at_key("error").get(kind) == simdjson::SUCCESS &&
                             expected.at_key("error").error() != simdjson::SUCCESS) {
    // Says more than the first key that an error lacks.
    difference = Difference{"error", "nothing", Cut(*answer)};
  } else {
    difference = comparer_.Compare(op, expected, actual);
  }
  if (!difference) return std::nullopt;

  TraceDifference report;
  report.trace = header.name;
  report.line = step.line;
  report.step = steps_of_trace_;
  report.op = op;
  report.difference = *std::move(difference);
  report.command = Cut(step.in);
  report.expected_answer = Cut(step.out);
  report.actual_answer = Cut(*answer);
  // A failure to answer here adds nothing to the report.
  if (const absl::StatusOr<std::string_view> state = engine_.Answer(R"({"op":"state"})");
      state.ok()) {
    report.state = Cut(*state);
  }
  return report;
}

}  // namespace tally
