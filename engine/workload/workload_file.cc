#include "engine/workload/workload_file.h"

#include <fmt/format.h>

#include <utility>

#include "engine/workload/azure_format.h"
#include "engine/workload/mooncake_format.h"
#include "engine/workload/prefill_trace_format.h"
#include "engine/workload/qwen_bailian_format.h"
#include "engine/workload/rtp_llm_format.h"
#include "engine/workload/token_expansion.h"
#include "engine/workload/vidur_format.h"

namespace tally {
namespace {

// A file whose first lines are broken is still known by those that follow.
constexpr std::size_t kLinesToLookAt = 16;

constexpr std::string_view kKnownFormats =
    "Mooncake, RTP-LLM, Qwen-Bailian or prefill-trace/1 JSON lines, or Azure 2023 or Vidur CSV";

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Mentions a key, in a line that need not be valid JSON.
bool HasKey(std::string_view line, std::string_view key) {
  return line.find(fmt::format("\"{}\"", key)) != std::string_view::npos;
}

}  // namespace

std::unique_ptr<RowFormat> FormatOfLine(std::string_view line, const FormatOptions& options) {
  // A byte order mark, as spreadsheets write it.
  if (line.substr(0, 3) == "\xEF\xBB\xBF") line.remove_prefix(3);
  if (line == kAzureHeader) return MakeAzureFormat();
  if (line == kVidurHeader) return MakeVidurFormat();
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos || line[begin] != '{') return nullptr;
  if (line.find("\"prefill-trace/") != std::string_view::npos) return MakePrefillTraceFormat();
  if (HasKey(line, "ts") && HasKey(line, "bh")) return MakeRtpLlmFormat(options);
  if (!HasKey(line, "timestamp") || !HasKey(line, "hash_ids")) return nullptr;
  if (HasKey(line, "chat_id")) return MakeQwenBailianFormat(options);
  return MakeMooncakeFormat(options);
}

absl::StatusOr<std::unique_ptr<WorkloadFile>> WorkloadFile::Open(
    const std::string& path, const WorkloadFileOptions& options) {
  absl::StatusOr<std::unique_ptr<TextFile>> file = TextFile::Open(path);
  if (!file.ok()) return file.status();
  std::unique_ptr<RowFormat> format;
  std::string first;
  for (std::size_t i = 0; i < kLinesToLookAt && format == nullptr; ++i) {
    std::string_view line;
    const absl::StatusOr<bool> found = (*file)->Peek(i, line);
    if (!found.ok()) return found.status();
    if (!*found) break;
    if (first.empty() && !IsBlank(line)) first = line;
    format = FormatOfLine(line, options.format);
  }
  if (format == nullptr && !first.empty()) {
    return absl::InvalidArgumentError(fmt::format("{}: begins with {}, wanted a workload: {}", path,
                                                  Excerpt(first), kKnownFormats));
  }
  return std::unique_ptr<WorkloadFile>(
      new WorkloadFile(*std::move(file), std::move(format), options));
}

absl::StatusOr<bool> WorkloadFile::Next(WorkloadRequest& request) {
  while (!ended_) {
    std::string_view line;
    const absl::StatusOr<bool> read = file_->Next(line);
    if (!read.ok() || !*read) {
      ended_ = true;
      return read;
    }
    if (file_->line_number() == 1 && line.substr(0, 3) == "\xEF\xBB\xBF") line.remove_prefix(3);
    if (IsBlank(line)) continue;
    request = WorkloadRequest();
    request.row = file_->line_number();
    RowFormat::Outcome outcome = format_->Parse(line, request);
    if (outcome.is_request && request.arrival < latest_arrival_) {
      outcome.error = RowError{1, fmt::format("arrives at {} s, wanted no time before the row "
                                              "above, {} s",
                                              request.arrival, latest_arrival_)};
    }
    if (outcome.error.has_value()) {
      ++num_bad_rows_;
      std::string message = fmt::format("{}:{}:{}: {}", file_->path(), file_->line_number(),
                                        outcome.error->column, outcome.error->message);
      if (!options_.skip_bad_rows) {
        ended_ = true;
        return absl::InvalidArgumentError(message);
      }
      if (bad_rows_.size() < kMaxKeptErrors) bad_rows_.push_back(std::move(message));
      continue;
    }
    if (!outcome.is_request) continue;
    latest_arrival_ = request.arrival;
    request.output_seed =
        StreamSeed(StreamKind::kOutput, static_cast<std::uint64_t>(request.row), 0);
    return true;
  }
  return false;
}

}  // namespace tally
