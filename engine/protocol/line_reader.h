// Cuts a stream of bytes into lines, with bounded memory.
#ifndef TALLY_ENGINE_PROTOCOL_LINE_READER_H_
#define TALLY_ENGINE_PROTOCOL_LINE_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tally {

class LineReader {
 public:
  // Reads up to `size` bytes to `data` and answers how many; 0 at the end of the stream.
  using Source = std::function<absl::StatusOr<std::size_t>(char* data, std::size_t size)>;

  enum class Kind {
    kLine,
    kTooLong,  // the line was longer than the limit and was skipped without being kept
    kEnd,
  };

  LineReader(Source source, std::size_t max_line_bytes);

  // The next line without its end ("\n" or "\r\n"); the view lives until the next call. A last line
  // without an end counts. An error of the source is passed on. For kTooLong `line` is empty.
  absl::StatusOr<Kind> Next(std::string_view& line);

  // Lines taken so far, skipped ones included: the number of the last line, from 1.
  std::int64_t line_number() const { return line_number_; }

 private:
  // False at the end of the stream.
  absl::StatusOr<bool> Fill();

  Source source_;
  std::size_t max_line_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // bytes [begin_, end_) of the buffer are not yet given out
  std::size_t end_ = 0;
  std::int64_t line_number_ = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_PROTOCOL_LINE_READER_H_
