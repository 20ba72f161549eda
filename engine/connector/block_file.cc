#include "engine/connector/block_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/connector/block_header.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".kv";
constexpr std::string_view kTemporary = ".tmp";

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }
  // False when the last bytes could not be written.
  bool Close() { return ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

absl::Status SystemError(std::string_view what, const fs::path& path) {
  const int error = errno;
  const std::string text = absl::StrCat(std::string(what), " ", path.string(), ": ",
                                        std::generic_category().message(error));
  return error == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

// Answers how many bytes came before the end of the file.
std::size_t ReadAll(int file, std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

bool WriteAll(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

bool ReadHeader(const File& file, const BlockFolder::Options& options, std::string_view key,
                BlockHeader& header) {
  if (ReadAll(file.get(), std::as_writable_bytes(std::span(&header, 1))) != sizeof header)
    return false;
  struct stat status {};
  return header.Fits(options.model, key, options.block_bytes) &&
         ::fstat(file.get(), &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) == sizeof header + options.block_bytes;
}

}  // namespace

fs::path BlockFolder::PathOf(std::string_view key) const {
  TALLY_CHECK(key.size() >= 4, "key of %zu digits", key.size());
  return options_.root / key.substr(0, 2) / key.substr(2, 2) /
         absl::StrCat(std::string(key), std::string(kSuffix));
}

bool BlockFolder::Holds(std::string_view key) const {
  const File file(::open(PathOf(key).c_str(), O_RDONLY | O_CLOEXEC));
  BlockHeader header;
  return file.open() && ReadHeader(file, options_, key, header);
}

absl::Status BlockFolder::Read(std::string_view key, std::span<std::byte> block) const {
  const fs::path path = PathOf(key);
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return SystemError("open", path);
  BlockHeader header;
  if (!ReadHeader(file, options_, key, header))
    return absl::DataLossError(absl::StrCat(path.string(), ": header"));
  if (ReadAll(file.get(), block) != block.size() || !header.FitsPayload(block)) {
    return absl::DataLossError(absl::StrCat(path.string(), ": checksum"));
  }
  ::futimens(file.get(), nullptr);  // used now; a read-only folder does not mind
  return absl::OkStatus();
}

absl::Status BlockFolder::Write(std::string_view key, std::span<const std::byte> block) const {
  TALLY_CHECK(block.size() == options_.block_bytes, "%zu bytes", block.size());
  const fs::path path = PathOf(key);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);  // its failure shows at once
  static std::atomic<std::uint64_t> next = 0;
  const fs::path temporary =
      absl::StrCat(path.string(), ".", ::getpid(), ".", next++, std::string(kTemporary));
  File file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.open()) return SystemError("create", temporary);
  const BlockHeader header = BlockHeader::Of(options_.model, key, block);
  const bool written = WriteAll(file.get(), std::as_bytes(std::span(&header, 1))) &&
                       WriteAll(file.get(), block) &&
                       (!options_.sync || ::fdatasync(file.get()) == 0) && file.Close() &&
                       ::rename(temporary.c_str(), path.c_str()) == 0;
  if (written) return absl::OkStatus();
  absl::Status status = SystemError("write", temporary);
  ::unlink(temporary.c_str());
  return status;
}

std::size_t BlockFolder::HeldPrefix(std::span<const std::string> keys) const {
  std::size_t held = 0;
  while (held < keys.size() && Holds(keys[held])) ++held;
  return held;
}

void BlockFolder::Read(std::span<BlockRead> reads) const {
  for (BlockRead& read : reads) read.status = Read(read.key, read.block);
}

void BlockFolder::Write(std::span<BlockWrite> writes) const {
  for (BlockWrite& write : writes)
    write.status = Holds(write.key) ? absl::OkStatus() : Write(write.key, write.block);
}

void BlockFolder::Remove(std::string_view key) const { ::unlink(PathOf(key).c_str()); }

void BlockFolder::Trim() const {
  struct Entry {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  std::uint64_t total = 0;
  const auto now = fs::file_time_type::clock::now();
  std::error_code error;
  // Others write and remove meanwhile: what cannot be looked at is passed over.
  fs::recursive_directory_iterator next(options_.root,
                                        fs::directory_options::skip_permission_denied, error);
  for (; !error && next != fs::recursive_directory_iterator(); next.increment(error)) {
    std::error_code unreadable;
    const fs::path& path = next->path();
    if (!next->is_regular_file(unreadable)) continue;
    const auto used = next->last_write_time(unreadable);
    const std::uint64_t bytes = next->file_size(unreadable);
    if (unreadable) continue;
    if (path.extension() == std::string(kTemporary)) {
      if (now - used > std::chrono::hours(1)) fs::remove(path, unreadable);
    } else if (path.extension() == std::string(kSuffix)) {
      entries.push_back({used, bytes, path});
      total += bytes;
    }
  }
  if (options_.max_bytes == 0 || total <= options_.max_bytes) return;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= options_.max_bytes / 10 * 9) break;
    std::error_code gone;
    fs::remove(entry.path, gone);
    total -= entry.bytes;
  }
}

}  // namespace tally
