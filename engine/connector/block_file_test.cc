#include "engine/connector/block_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kBytes = 100;
constexpr char kKey[] = "0123abcd";

class BlockFileTest : public ::testing::Test {
 protected:
  BlockFileTest() {
    std::string name = absl::StrCat(::testing::TempDir(), "/block_file_XXXXXX");
    root_ = ::mkdtemp(name.data());
  }
  ~BlockFileTest() override { fs::remove_all(root_); }

  BlockFolder Folder(std::string model = "model", std::uint64_t max_bytes = 0) const {
    return BlockFolder(
        {.root = root_, .model = std::move(model), .block_bytes = kBytes, .max_bytes = max_bytes});
  }
  static std::vector<std::byte> Block(int value) {
    return std::vector<std::byte>(kBytes, static_cast<std::byte>(value));
  }
  std::size_t NumFiles() const {
    std::size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root_))
      count += entry.is_regular_file();
    return count;
  }

  fs::path root_;
};

TEST_F(BlockFileTest, WhatIsWrittenIsRead) {
  const BlockFolder folder = Folder();
  std::vector<std::byte> read = Block(0);
  EXPECT_FALSE(folder.Holds(kKey));
  EXPECT_EQ(folder.Read(kKey, read).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(folder.Write(kKey, Block(7)).ok());
  EXPECT_EQ(folder.PathOf(kKey), root_ / "01" / "23" / "0123abcd.kv");
  EXPECT_TRUE(folder.Holds(kKey));
  ASSERT_TRUE(folder.Read(kKey, read).ok());
  EXPECT_EQ(read, Block(7));
  ASSERT_TRUE(folder.Write(kKey, Block(8)).ok());
  ASSERT_TRUE(folder.Read(kKey, read).ok());
  EXPECT_EQ(read, Block(8));
  EXPECT_EQ(NumFiles(), 1U);
}

TEST_F(BlockFileTest, ADamagedByteAnywhereIsSeen) {
  const BlockFolder folder = Folder();
  ASSERT_TRUE(folder.Write(kKey, Block(7)).ok());
  const fs::path path = folder.PathOf(kKey);
  const auto size = static_cast<std::streamoff>(fs::file_size(path));
  ASSERT_EQ(size, 56 + static_cast<std::streamoff>(kBytes));
  for (std::streamoff place = 0; place < size; ++place) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(place);
    const int byte = file.get();
    file.seekp(place);
    file.put(static_cast<char>(byte ^ 0x10));
    file.close();
    std::vector<std::byte> read = Block(0);
    EXPECT_EQ(folder.Read(kKey, read).code(), absl::StatusCode::kDataLoss) << place;
    file.open(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(place);
    file.put(static_cast<char>(byte));
  }
  std::vector<std::byte> read = Block(0);
  EXPECT_TRUE(folder.Read(kKey, read).ok());
}

TEST_F(BlockFileTest, ACutOrLongerOrMovedFileIsSeen) {
  const BlockFolder folder = Folder();
  ASSERT_TRUE(folder.Write(kKey, Block(7)).ok());
  std::vector<std::byte> read = Block(0);
  fs::create_directories(folder.PathOf("45670000").parent_path());
  fs::copy_file(folder.PathOf(kKey), folder.PathOf("45670000"));
  EXPECT_FALSE(folder.Holds("45670000"));
  EXPECT_EQ(folder.Read("45670000", read).code(), absl::StatusCode::kDataLoss);
  for (const std::uintmax_t size : {0, 1, 55, 56, 155, 157}) {
    fs::resize_file(folder.PathOf(kKey), size);
    EXPECT_FALSE(folder.Holds(kKey)) << size;
    EXPECT_EQ(folder.Read(kKey, read).code(), absl::StatusCode::kDataLoss) << size;
    ASSERT_TRUE(folder.Write(kKey, Block(7)).ok());
  }
}

TEST_F(BlockFileTest, AnotherModelsFileIsNotTaken) {
  ASSERT_TRUE(Folder("llama").Write(kKey, Block(7)).ok());
  EXPECT_TRUE(Folder("llama").Holds(kKey));
  EXPECT_FALSE(Folder("qwen").Holds(kKey));
  std::vector<std::byte> read = Block(0);
  EXPECT_EQ(Folder("qwen").Read(kKey, read).code(), absl::StatusCode::kDataLoss);
  const BlockFolder larger({.root = root_, .model = "llama", .block_bytes = kBytes * 2});
  EXPECT_FALSE(larger.Holds(kKey));
}

TEST_F(BlockFileTest, AFolderThatCannotBeWrittenIsTold) {
  std::ofstream(root_ / "file") << "x";
  const BlockFolder folder({.root = root_ / "file", .model = "m", .block_bytes = kBytes});
  EXPECT_FALSE(folder.Write(kKey, Block(1)).ok());
  EXPECT_FALSE(folder.Holds(kKey));
  folder.Trim();
}

TEST_F(BlockFileTest, AFullDiskLeavesNothingBehind) {
  // A limit on the size of a file fails a write in its middle, as a full disk does.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{.rlim_cur = 90, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = Folder().Write(kKey, Block(1));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(Folder().Holds(kKey));
  EXPECT_EQ(NumFiles(), 0U);
}

TEST_F(BlockFileTest, WritersOfOneKeyNeverMix) {
  const BlockFolder folder = Folder();
  std::vector<std::thread> writers;
  for (int value = 1; value <= 3; ++value) {
    writers.emplace_back([&folder, value] {
      for (int i = 0; i < 100; ++i) EXPECT_TRUE(folder.Write(kKey, Block(value)).ok());
    });
  }
  int reads = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<std::byte> read = Block(0);
    const absl::Status status = folder.Read(kKey, read);
    if (absl::IsNotFound(status)) continue;
    ASSERT_TRUE(status.ok()) << status;
    ++reads;
    EXPECT_EQ(read, Block(static_cast<int>(read[0])));
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(NumFiles(), 1U);
}

TEST_F(BlockFileTest, TheFilesUnusedForLongestGoFirst) {
  const BlockFolder folder = Folder("model", 156 * 10);
  const auto key = [](int i) { return absl::StrCat("ab", 10 + i, "00"); };
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(folder.Write(key(i), Block(i)).ok());
    fs::last_write_time(folder.PathOf(key(i)), now - std::chrono::minutes(100 - i));
  }
  std::vector<std::byte> read = Block(0);
  ASSERT_TRUE(folder.Read(key(0), read).ok());  // used now
  std::ofstream(root_ / "ab" / "dead.kv.1.2.tmp") << "x";
  fs::last_write_time(root_ / "ab" / "dead.kv.1.2.tmp", now - std::chrono::hours(2));
  std::ofstream(root_ / "ab" / "live.kv.1.3.tmp") << "x";
  folder.Trim();
  EXPECT_TRUE(folder.Holds(key(0)));
  for (int i = 1; i <= 3; ++i) EXPECT_FALSE(folder.Holds(key(i))) << i;
  for (int i = 4; i < 12; ++i) EXPECT_TRUE(folder.Holds(key(i))) << i;
  EXPECT_FALSE(fs::exists(root_ / "ab" / "dead.kv.1.2.tmp"));
  EXPECT_TRUE(fs::exists(root_ / "ab" / "live.kv.1.3.tmp"));
}

}  // namespace
}  // namespace tally
