// A workload in a file of one of the known formats, found by looking at it; plain or gzip.
#ifndef TALLY_ENGINE_WORKLOAD_WORKLOAD_FILE_H_
#define TALLY_ENGINE_WORKLOAD_WORKLOAD_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/workload/row_format.h"
#include "engine/workload/text_file.h"
#include "engine/workload/workload.h"

namespace tally {

struct WorkloadFileOptions {
  // Pass broken rows over and count them, instead of ending with an error.
  bool skip_bad_rows = false;
  FormatOptions format;
};

class WorkloadFile : public WorkloadSource {
 public:
  // Broken rows whose messages are kept when they are passed over.
  static constexpr std::size_t kMaxKeptErrors = 10;

  // Opens the file and finds its format by its first lines; an empty file is a workload without
  // requests. InvalidArgument when no format fits, or as TextFile::Open.
  static absl::StatusOr<std::unique_ptr<WorkloadFile>> Open(const std::string& path,
                                                            const WorkloadFileOptions& options);

  std::string_view format() const override { return format_ ? format_->name() : "empty"; }
  bool has_arrivals() const override { return format_ == nullptr || format_->has_arrivals(); }
  bool has_prefixes() const override { return format_ != nullptr && format_->has_prefixes(); }
  absl::StatusOr<bool> Next(WorkloadRequest& request) override;
  std::int64_t num_bad_rows() const override { return num_bad_rows_; }
  double fraction_read() const override { return file_->fraction_read(); }

  // The messages of the first broken rows that were passed over.
  const std::vector<std::string>& bad_rows() const { return bad_rows_; }

 private:
  WorkloadFile(std::unique_ptr<TextFile> file, std::unique_ptr<RowFormat> format,
               const WorkloadFileOptions& options)
      : file_(std::move(file)), format_(std::move(format)), options_(options) {}

  std::unique_ptr<TextFile> file_;
  std::unique_ptr<RowFormat> format_;  // null for an empty file
  const WorkloadFileOptions options_;
  bool ended_ = false;
  Seconds latest_arrival_ = 0;
  std::int64_t num_bad_rows_ = 0;
  std::vector<std::string> bad_rows_;
};

// The format whose rows look like `line`, or null.
std::unique_ptr<RowFormat> FormatOfLine(std::string_view line, const FormatOptions& options);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_WORKLOAD_FILE_H_
