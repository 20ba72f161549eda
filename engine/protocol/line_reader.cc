#include "engine/protocol/line_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tally {
namespace {

constexpr std::size_t kReadBytes = 1 << 16;

}  // namespace

LineReader::LineReader(Source source, std::size_t max_line_bytes)
    : source_(std::move(source)), max_line_bytes_(max_line_bytes) {}

absl::StatusOr<bool> LineReader::Fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + kReadBytes)
    buffer_.resize(std::max(2 * buffer_.size(), end_ + kReadBytes));
  absl::StatusOr<std::size_t> count = source_(buffer_.data() + end_, kReadBytes);
  if (!count.ok()) return count.status();
  end_ += *count;
  return *count > 0;
}

absl::StatusOr<LineReader::Kind> LineReader::Next(std::string_view& line) {
  line = {};
  std::size_t searched = 0;  // bytes of this line without an end
  bool too_long = false;
  while (true) {
    const char* start = buffer_.data() + begin_;
    const std::size_t available = end_ - begin_;
    const void* found =
        available > searched ? std::memchr(start + searched, '\n', available - searched) : nullptr;
    if (found != nullptr) {
      std::size_t length = static_cast<std::size_t>(static_cast<const char*>(found) - start);
      begin_ += length + 1;
      ++line_number_;
      if (too_long || length > max_line_bytes_ + 1) return Kind::kTooLong;
      if (length > 0 && start[length - 1] == '\r') --length;
      if (length > max_line_bytes_) return Kind::kTooLong;
      line = {start, length};
      return Kind::kLine;
    }
    searched = available;
    if (available > max_line_bytes_ + 1) {
      too_long = true;
      begin_ = end_ = searched = 0;
    }
    const absl::StatusOr<bool> more = Fill();
    if (!more.ok()) return more.status();
    if (*more) continue;
    if (too_long) {
      begin_ = end_;
      ++line_number_;
      return Kind::kTooLong;
    }
    if (end_ == begin_) return Kind::kEnd;
    std::size_t length = end_ - begin_;
    line = {buffer_.data() + begin_, length};
    if (line.back() == '\r') line.remove_suffix(1);
    begin_ = end_;
    ++line_number_;
    if (line.size() <= max_line_bytes_) return Kind::kLine;
    line = {};
    return Kind::kTooLong;
  }
}

}  // namespace tally
