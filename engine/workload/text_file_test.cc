#include "engine/workload/text_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/workload/test_files.h"

namespace tally {
namespace {

// All lines; the status that ended them in `status`.
std::vector<std::string> Lines(const std::string& path, absl::Status& status) {
  absl::StatusOr<std::unique_ptr<TextFile>> file = TextFile::Open(path);
  status = file.status();
  std::vector<std::string> lines;
  if (!file.ok()) return lines;
  for (;;) {
    std::string_view line;
    const absl::StatusOr<bool> read = (*file)->Next(line);
    status = read.status();
    if (!read.ok() || !*read) return lines;
    lines.emplace_back(line);
    EXPECT_EQ((*file)->line_number(), static_cast<std::int64_t>(lines.size()));
  }
}

std::vector<std::string> Lines(const std::string& path) {
  absl::Status status;
  std::vector<std::string> lines = Lines(path, status);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return lines;
}

// Lines that do not compress to nothing.
std::string NumberedLines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "line " + std::to_string(i * 7919 % 10'007) + "\n";
  return text;
}

using StringList = std::vector<std::string>;

TEST(TextFileTest, LineEndsOfBothKinds) {
  EXPECT_EQ(Lines(WriteTestFile("a", "one\ntwo\r\n\nfour\n")),
            (StringList{"one", "two", "", "four"}));
}

TEST(TextFileTest, LastLineWithoutEnd) {
  EXPECT_EQ(Lines(WriteTestFile("a", "one\r\ntwo")), (StringList{"one", "two"}));
  EXPECT_EQ(Lines(WriteTestFile("b", "one\r\ntwo\r")), (StringList{"one", "two"}));
}

TEST(TextFileTest, EmptyFile) { EXPECT_EQ(Lines(WriteTestFile("a", "")), StringList{}); }

TEST(TextFileTest, LongerThanAChunk) {
  const std::string one(300'000, 'x'), two(700'000, 'y');
  EXPECT_EQ(Lines(WriteTestFile("a", one + "\n" + two + "\n")), (StringList{one, two}));
}

TEST(TextFileTest, Gzip) {
  EXPECT_EQ(Lines(WriteGzipTestFile("a", "one\ntwo")), (StringList{"one", "two"}));
  // Members one after another, as pigz and cat make them.
  EXPECT_EQ(Lines(WriteTestFile("b", Gzip("one\n") + Gzip("two\n"))), (StringList{"one", "two"}));
}

TEST(TextFileTest, TruncatedGzipIsToldBehindTheLastWholeLine) {
  const std::string whole = Gzip(NumberedLines(20'000));
  absl::Status status;
  const StringList lines = Lines(WriteTestFile("a", whole.substr(0, whole.size() / 2)), status);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status.ToString();
  EXPECT_GT(lines.size(), 100U);
  EXPECT_LT(lines.size(), 20'000U);
  EXPECT_EQ(lines[0], "line 0");
  EXPECT_NE(status.message().find("after line " + std::to_string(lines.size())), std::string::npos)
      << status.ToString();
}

TEST(TextFileTest, DamagedGzip) {
  std::string bytes = Gzip(NumberedLines(20'000));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x55);
  absl::Status status;
  Lines(WriteTestFile("a", bytes), status);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status.ToString();
}

TEST(TextFileTest, WhatCannotBeOpened) {
  absl::Status status;
  Lines(testing::TempDir() + "/no_such_file", status);
  EXPECT_TRUE(absl::IsNotFound(status)) << status.ToString();
  EXPECT_NE(status.message().find("no_such_file"), std::string::npos);
  Lines(testing::TempDir(), status);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status.ToString();
  EXPECT_NE(status.message().find("a directory"), std::string::npos);
}

TEST(TextFileTest, UnreadableFile) {
  const std::string path = WriteTestFile("a", "one\n");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  if (access(path.c_str(), R_OK) == 0) GTEST_SKIP() << "root may read every file";
  absl::Status status;
  Lines(path, status);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status.ToString();
}

TEST(TextFileTest, LineBeyondTheLimit) {
  const std::string path =
      WriteGzipTestFile("a", "one\n" + std::string(TextFile::kMaxLineBytes + 10, 'x') + "\n");
  absl::Status status;
  EXPECT_EQ(Lines(path, status), StringList{"one"});
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status.ToString();
  EXPECT_NE(status.message().find(":2: "), std::string::npos) << status.ToString();
}

TEST(TextFileTest, PeekTakesNothingOff) {
  absl::StatusOr<std::unique_ptr<TextFile>> file =
      TextFile::Open(WriteTestFile("a", "one\ntwo\nthree\n"));
  ASSERT_TRUE(file.ok());
  std::string_view line;
  EXPECT_TRUE(*(*file)->Peek(1, line));
  EXPECT_EQ(line, "two");
  EXPECT_TRUE(*(*file)->Peek(0, line));
  EXPECT_EQ(line, "one");
  EXPECT_FALSE(*(*file)->Peek(3, line));
  for (const char* expected : {"one", "two", "three"}) {
    EXPECT_TRUE(*(*file)->Next(line));
    EXPECT_EQ(line, expected);
  }
  EXPECT_FALSE(*(*file)->Next(line));
  EXPECT_EQ((*file)->line_number(), 3);
  EXPECT_EQ((*file)->fraction_read(), 1);
}

}  // namespace
}  // namespace tally
