// One block of KV in a file: a header that says what it is, then the bytes (connectors.md 7.4).
//
// A file appears whole or not at all: it is written under another name in its folder and renamed.
// A reader believes nothing: magic, version, model, key, size and checksums must fit, or the file
// counts as damaged. So several processes may use a folder, and one that dies leaves at most a
// temporary file.
#ifndef TALLY_ENGINE_CONNECTOR_BLOCK_FILE_H_
#define TALLY_ENGINE_CONNECTOR_BLOCK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/connector/block_store.h"

namespace tally {

class BlockFolder final : public BlockStore {
 public:
  struct Options {
    std::filesystem::path root;
    std::string model;            // fingerprint: of weights, data type, layout
    std::size_t block_bytes = 0;  // of one block of KV
    bool sync = false;            // a file is on the disk before it gets its name
    std::uint64_t max_bytes = 0;  // of all files; 0: no limit
  };
  explicit BlockFolder(Options options) : options_(std::move(options)) {}

  // root/ab/cd/abcd....kv; keys are hexadecimal, at least four digits.
  std::filesystem::path PathOf(std::string_view key) const;

  std::size_t block_bytes() const override { return options_.block_bytes; }
  std::uint64_t trim_interval() const override { return options_.max_bytes / 20; }
  std::size_t HeldPrefix(std::span<const std::string> keys) const override;
  void Read(std::span<BlockRead> reads) const override;
  void Write(std::span<BlockWrite> writes) const override;

  // Whether there is a file for the key whose header and size fit. Reads the header only.
  bool Holds(std::string_view key) const;
  // Fills `block`, which may be changed even on failure. NotFound, DataLoss for a file that is not
  // what it should be, or what the system says.
  absl::Status Read(std::string_view key, std::span<std::byte> block) const;
  // Nothing is left behind on failure.
  absl::Status Write(std::string_view key, std::span<const std::byte> block) const;
  // Removes a damaged file.
  void Remove(std::string_view key) const override;

  // Removes the files that were not used for the longest time until nine tenths of max_bytes are
  // left, if there are more than max_bytes, and temporary files older than an hour. O(files).
  void Trim() const override;

  const Options& options() const { return options_; }

 private:
  const Options options_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_BLOCK_FILE_H_
