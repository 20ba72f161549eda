#include "engine/workload/text_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tally {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;

absl::Status OpenError(const std::string& path, int error) {
  const std::string message = fmt::format("{}: {}", path, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextFile>> TextFile::Open(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return OpenError(path, errno);
  if (S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(fmt::format("{}: a directory, wanted a file", path));
  }
  errno = 0;
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return OpenError(path, errno == 0 ? ENOMEM : errno);
  gzbuffer(file, kChunkBytes);
  return std::unique_ptr<TextFile>(new TextFile(path, file, info.st_size));
}

TextFile::~TextFile() { gzclose(file_); }

absl::StatusOr<bool> TextFile::Next(std::string_view& line) {
  if (!peeked_.empty()) {
    line_ = std::move(peeked_.front());
    peeked_.pop_front();
  } else {
    const absl::StatusOr<bool> read = Read(line_);
    if (!read.ok() || !*read) return read;
  }
  ++line_number_;
  line = line_;
  return true;
}

absl::StatusOr<bool> TextFile::Peek(std::size_t ahead, std::string_view& line) {
  while (peeked_.size() <= ahead) {
    std::string next;
    const absl::StatusOr<bool> read = Read(next);
    if (!read.ok() || !*read) return read;
    peeked_.push_back(std::move(next));
  }
  line = peeked_[ahead];
  return true;
}

double TextFile::fraction_read() const {
  if (at_end_ && place_ == buffer_.size() && peeked_.empty()) return 1;
  if (num_bytes_ <= 0) return 0;
  // For compressed data zlib knows how many bytes of the file it took; what waits in the buffer is
  // not worth subtracting.
  const double fraction = static_cast<double>(gzoffset(file_)) / static_cast<double>(num_bytes_);
  return std::clamp(fraction, 0.0, 1.0);
}

absl::StatusOr<bool> TextFile::Read(std::string& line) {
  line.clear();
  for (;;) {
    if (place_ == buffer_.size()) {
      if (at_end_) break;
      Fill();
      continue;
    }
    const std::size_t end = buffer_.find('\n', place_);
    const std::size_t stop = end == std::string::npos ? buffer_.size() : end;
    line.append(buffer_, place_, stop - place_);
    if (line.size() > kMaxLineBytes) {
      return absl::InvalidArgumentError(fmt::format(
          "{}:{}: a line of more than {} MiB, wanted a text file of one request a line", path_,
          line_number_ + static_cast<std::int64_t>(peeked_.size()) + 1, kMaxLineBytes >> 20));
    }
    place_ = stop;
    if (end == std::string::npos) continue;
    ++place_;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return true;
  }
  if (!damage_.empty()) {
    return absl::DataLossError(
        fmt::format("{}: {}, after line {}", path_, damage_,
                    line_number_ + static_cast<std::int64_t>(peeked_.size())));
  }
  if (line.empty()) return false;
  if (line.back() == '\r') line.pop_back();
  return true;
}

void TextFile::Fill() {
  buffer_.resize(kChunkBytes);
  place_ = 0;
  errno = 0;
  const int count = gzread(file_, buffer_.data(), static_cast<unsigned>(kChunkBytes));
  buffer_.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  if (count == static_cast<int>(kChunkBytes)) return;
  at_end_ = true;
  int error = Z_OK;
  const char* message = gzerror(file_, &error);
  if (error == Z_OK || error == Z_STREAM_END) return;
  damage_ = error == Z_ERRNO       ? std::strerror(errno)
            : error == Z_BUF_ERROR ? "the compressed data end too early"
                                   : message;
}

}  // namespace tally
