// Reads a text file line by line, compressed with gzip or not, in bounded memory.
#ifndef TALLY_ENGINE_WORKLOAD_TEXT_FILE_H_
#define TALLY_ENGINE_WORKLOAD_TEXT_FILE_H_

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tally {

class TextFile {
 public:
  // A line longer than this is an error: no row of a workload comes near it, and a binary file
  // must not fill the memory.
  static constexpr std::size_t kMaxLineBytes = 64 << 20;

  // NotFound, PermissionDenied or FailedPrecondition (a directory) with the path in the message.
  static absl::StatusOr<std::unique_ptr<TextFile>> Open(const std::string& path);
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  // The next line, without its line end ("\n" or "\r\n"); the last line needs none. False at the
  // end of the file. DataLoss when the file ends in the middle of its compressed data or can't be
  // read on. The text lives until the next call.
  absl::StatusOr<bool> Next(std::string_view& line);
  // The number of the line that Next gave last, from 1.
  std::int64_t line_number() const { return line_number_; }

  // Gives the next line without taking it off: Next will give it, and those behind it, again.
  // `ahead` counts from 0. False when the file has no such line.
  absl::StatusOr<bool> Peek(std::size_t ahead, std::string_view& line);

  const std::string& path() const { return path_; }
  // Bytes of the file that were read, of all its bytes, 0 to 1.
  double fraction_read() const;

 private:
  TextFile(std::string path, gzFile file, std::int64_t num_bytes)
      : path_(std::move(path)), file_(file), num_bytes_(num_bytes) {}

  // Reads one line of the file, behind the lines that were peeked at.
  absl::StatusOr<bool> Read(std::string& line);
  void Fill();

  const std::string path_;
  const gzFile file_;
  const std::int64_t num_bytes_;
  std::string buffer_;     // bytes read from the file ...
  std::size_t place_ = 0;  // ... and how many of them were handed out
  bool at_end_ = false;
  std::string damage_;  // why the file ended before its end; told behind its last whole line
  std::deque<std::string> peeked_;
  std::string line_;
  std::int64_t line_number_ = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_TEXT_FILE_H_
