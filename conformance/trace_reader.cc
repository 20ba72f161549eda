#include "conformance/trace_reader.h"

#include <zlib.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

// Longer than any command, since answers hold whole block tables.
constexpr std::size_t kMaxTraceLineBytes = std::size_t{64} << 20;

struct CloseGz {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

absl::StatusOr<std::size_t> ReadGz(gzFile file, const std::string& path, char* data,
                                   std::size_t size) {
  const int count = gzread(file, data, static_cast<unsigned>(size));
  if (count > 0) return static_cast<std::size_t>(count);
  // A stream that is cut off ends like a whole one but for this.
  int code = Z_OK;
  const char* text = gzerror(file, &code);
  if (count < 0 || (code != Z_OK && code != Z_STREAM_END))
    return absl::DataLossError(absl::StrCat(path, ": ", text));
  return 0;
}

using simdjson::ondemand::object;

bool ReadString(object& from, std::string_view key, std::string& to) {
  std::string_view text;
  if (from.find_field_unordered(key).get_string().get(text) != simdjson::SUCCESS) return false;
  to.assign(text);
  return true;
}

bool ReadObject(object& from, std::string_view key, std::string& to) {
  object value;
  std::string_view raw;
  if (from.find_field_unordered(key).get_object().get(value) != simdjson::SUCCESS) return false;
  if (value.raw_json().get(raw) != simdjson::SUCCESS) return false;
  to.assign(raw);
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceReader>> TraceReader::Open(const std::string& path) {
  std::shared_ptr<gzFile_s> file(gzopen(path.c_str(), "rb"), [](gzFile_s* opened) {
    if (opened != nullptr) CloseGz()(opened);
  });
  if (file == nullptr) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  auto source = [file, path](char* data, std::size_t size) {
    return ReadGz(file.get(), path, data, size);
  };
  return std::make_unique<TraceReader>(std::move(source), path);
}

TraceReader::TraceReader(LineReader::Source source, std::string name)
    : lines_(std::move(source), kMaxTraceLineBytes), name_(std::move(name)) {}

absl::Status TraceReader::Fault(std::string_view message) const {
  return absl::DataLossError(
      absl::StrCat(name_, ":", lines_.line_number(), ": ", std::string(message)));
}

absl::StatusOr<TraceReader::Kind> TraceReader::Parse(std::string_view line) {
  padded_.assign(line);
  padded_.reserve(padded_.size() + simdjson::SIMDJSON_PADDING);
  simdjson::ondemand::document document;
  object fields;
  if (const auto error =
          parser_.iterate(padded_.data(), padded_.size(), padded_.capacity()).get(document)) {
    return Fault(simdjson::error_message(error));
  }
  if (document.get_object().get(fields) != simdjson::SUCCESS) return Fault("wanted a JSON object");
  if (ReadObject(fields, "in", step_.in)) {
    if (!ReadObject(fields, "out", step_.out)) return Fault("out: wanted an object");
    step_.line = lines_.line_number();
    return Kind::kStep;
  }
  std::string format;
  if (!ReadString(fields, "format", format)) {
    return Fault("wanted a header with \"format\" or a step with \"in\" and \"out\"");
  }
  if (format != kTraceFormat) {
    return Fault(absl::StrCat("format: ", format, ", wanted ", std::string(kTraceFormat)));
  }
  if (!ReadString(fields, "name", header_.name)) return Fault("name: wanted a string");
  if (!ReadString(fields, "reference", header_.reference))
    return Fault("reference: wanted a string");
  if (!ReadObject(fields, "config", header_.config)) return Fault("config: wanted an object");
  return Kind::kHeader;
}

absl::StatusOr<TraceReader::Kind> TraceReader::Peek() {
  while (!peeked_) {
    std::string_view line;
    const absl::StatusOr<LineReader::Kind> read = lines_.Next(line);
    if (!read.ok()) return read.status();
    if (*read == LineReader::Kind::kTooLong) return Fault("line: longer than 64 MiB");
    if (*read == LineReader::Kind::kLine && line.empty()) continue;
    if (*read == LineReader::Kind::kEnd) {
      kind_ = Kind::kEnd;
    } else {
      absl::StatusOr<Kind> kind = Parse(line);
      if (!kind.ok()) return kind.status();
      kind_ = *kind;
    }
    peeked_ = true;
  }
  return kind_;
}

absl::StatusOr<bool> TraceReader::NextTrace(TraceHeader& header) {
  const bool at_start = lines_.line_number() == 0;
  while (true) {
    const absl::StatusOr<Kind> kind = Peek();
    if (!kind.ok()) return kind.status();
    if (*kind == Kind::kEnd) return false;
    peeked_ = false;
    if (*kind == Kind::kHeader) {
      std::swap(header, header_);
      return true;
    }
    if (at_start) return Fault("a step before the first header");
  }
}

absl::StatusOr<bool> TraceReader::NextStep(TraceStep& step) {
  const absl::StatusOr<Kind> kind = Peek();
  if (!kind.ok()) return kind.status();
  if (*kind != Kind::kStep) return false;
  peeked_ = false;
  std::swap(step, step_);
  return true;
}

}  // namespace tally
