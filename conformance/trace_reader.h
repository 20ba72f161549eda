// Reads traces of the format prefill-trace/1 (trace_format.md), one step at a time, from plain or
// gzip-compressed files.
//
//   file    = *trace
//   trace   = header *step
//   header  = {"format":"prefill-trace/1", "name":string, "reference":string, "config":object} LF
//   step    = {"in":command, "out":answer} LF
//   command = {"op":string, "t":number, ...}
//   answer  = object
//
// Lines end in LF or CRLF; empty lines are passed over; keys come in any order. The reader holds
// one line, never a file.
#ifndef TALLY_CONFORMANCE_TRACE_READER_H_
#define TALLY_CONFORMANCE_TRACE_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/protocol/line_reader.h"
#include "simdjson.h"

namespace tally {

inline constexpr std::string_view kTraceFormat = "prefill-trace/1";

struct TraceHeader {
  std::string name;       // "preempt/7"
  std::string reference;  // what recorded it: "vllm 0.20.0"
  std::string config;     // JSON object
};

struct TraceStep {
  std::string in;  // JSON objects
  std::string out;
  std::int64_t line = 0;  // of the file, from 1
};

class TraceReader {
 public:
  // NotFound when the file cannot be opened.
  static absl::StatusOr<std::unique_ptr<TraceReader>> Open(const std::string& path);
  // `name` starts every message.
  TraceReader(LineReader::Source source, std::string name);

  // The next trace, steps of the current one that were not taken are passed over; false at the end.
  // DataLoss for a text that is not of this format or a compressed stream that is cut off; the
  // message names file and line.
  absl::StatusOr<bool> NextTrace(TraceHeader& header);
  // The next step of the current trace; false at its end.
  absl::StatusOr<bool> NextStep(TraceStep& step);

 private:
  enum class Kind { kHeader, kStep, kEnd };

  // Reads a line into header_ or step_, unless one is waiting there.
  absl::StatusOr<Kind> Peek();
  absl::StatusOr<Kind> Parse(std::string_view line);
  absl::Status Fault(std::string_view message) const;

  LineReader lines_;
  std::string name_;
  bool peeked_ = false;
  Kind kind_ = Kind::kEnd;
  TraceHeader header_;
  TraceStep step_;
  simdjson::ondemand::parser parser_;
  std::string padded_;
};

}  // namespace tally

#endif  // TALLY_CONFORMANCE_TRACE_READER_H_
