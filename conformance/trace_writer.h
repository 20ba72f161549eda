// Writes traces of the format prefill-trace/1 (trace_reader.h has the grammar).
#ifndef TALLY_CONFORMANCE_TRACE_WRITER_H_
#define TALLY_CONFORMANCE_TRACE_WRITER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "conformance/trace_reader.h"

namespace tally {

// Each call writes whole lines. Texts given as JSON must be JSON objects without line ends.
class TraceWriter {
 public:
  // Takes bytes; a status when they cannot be kept.
  using Sink = std::function<absl::Status(std::string_view bytes)>;

  // Creates or replaces a file, compressed when its name ends in ".gz". The bytes depend on the
  // content alone.
  static absl::StatusOr<std::unique_ptr<TraceWriter>> Create(const std::string& path);
  explicit TraceWriter(Sink sink);

  absl::Status BeginTrace(const TraceHeader& header);
  absl::Status AddStep(std::string_view in, std::string_view out);
  // Writes out what is held back and closes the file. Nothing may be written afterwards.
  absl::Status Close();

 private:
  Sink sink_;
  std::function<absl::Status()> close_;
  std::string line_;
};

}  // namespace tally

#endif  // TALLY_CONFORMANCE_TRACE_WRITER_H_
