#include "conformance/trace_writer.h"

#include <zlib.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/protocol/json_writer.h"

namespace tally {

absl::StatusOr<std::unique_ptr<TraceWriter>> TraceWriter::Create(const std::string& path) {
  const bool compressed = path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0;
  // "T": transparent, without compression.
  gzFile file = gzopen(path.c_str(), compressed ? "wb9" : "wbT");
  if (file == nullptr)
    return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be written"));
  auto held = std::make_shared<gzFile>(file);
  auto writer = std::make_unique<TraceWriter>([held, path](std::string_view bytes) -> absl::Status {
    const int written = gzwrite(*held, bytes.data(), static_cast<unsigned>(bytes.size()));
    if (written == static_cast<int>(bytes.size())) return absl::OkStatus();
    int code = Z_OK;
    return absl::DataLossError(absl::StrCat(path, ": ", gzerror(*held, &code)));
  });
  writer->close_ = [held, path]() -> absl::Status {
    if (gzclose(std::exchange(*held, nullptr)) == Z_OK) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(path, ": cannot be written to its end"));
  };
  return writer;
}

TraceWriter::TraceWriter(Sink sink) : sink_(std::move(sink)) {}

absl::Status TraceWriter::BeginTrace(const TraceHeader& header) {
  line_.clear();
  JsonWriter json(line_);
  json.BeginObject();
  json.Key("format").String(kTraceFormat);
  json.Key("name").String(header.name);
  json.Key("reference").String(header.reference);
  json.Key("config").Raw(header.config);
  json.EndObject();
  line_.push_back('\n');
  return sink_(line_);
}

absl::Status TraceWriter::AddStep(std::string_view in, std::string_view out) {
  line_.clear();
  JsonWriter json(line_);
  json.BeginObject();
  json.Key("in").Raw(in);
  json.Key("out").Raw(out);
  json.EndObject();
  line_.push_back('\n');
  return sink_(line_);
}

absl::Status TraceWriter::Close() {
  if (!close_) return absl::OkStatus();
  return std::exchange(close_, nullptr)();
}

}  // namespace tally
