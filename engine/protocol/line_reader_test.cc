#include "engine/protocol/line_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace tally {
namespace {

// Gives `text` in pieces of at most `piece` bytes.
LineReader::Source Pieces(std::string text, std::size_t piece) {
  return [text, piece, at = std::size_t{0}](
             char* data, std::size_t size) mutable -> absl::StatusOr<std::size_t> {
    const std::size_t count = std::min({piece, size, text.size() - at});
    std::memcpy(data, text.data() + at, count);
    at += count;
    return count;
  };
}

// All lines; "<too long>" for one that was skipped.
std::vector<std::string> Lines(const std::string& text, std::size_t piece, std::size_t limit) {
  LineReader reader(Pieces(text, piece), limit);
  std::vector<std::string> lines;
  std::string_view line;
  while (true) {
    const auto kind = reader.Next(line);
    EXPECT_TRUE(kind.ok());
    if (!kind.ok() || *kind == LineReader::Kind::kEnd) break;
    lines.emplace_back(*kind == LineReader::Kind::kTooLong ? "<too long>" : line);
  }
  EXPECT_EQ(reader.line_number(), static_cast<std::int64_t>(lines.size()));
  return lines;
}

TEST(LineReaderTest, CutsLinesWhereverReadsEnd) {
  const std::string text = "one\r\n\ntwo\nlast without an end";
  const std::vector<std::string> expected = {"one", "", "two", "last without an end"};
  for (std::size_t piece = 1; piece <= text.size() + 1; ++piece)
    EXPECT_EQ(Lines(text, piece, 100), expected);
}

TEST(LineReaderTest, SkipsALineThatIsTooLongAndGoesOn) {
  const std::string text = "ab\n" + std::string(6, 'x') + "\r\ncd\n" + std::string(5, 'y') +
                           "\nef\n" + std::string(9, 'z');
  const std::vector<std::string> expected = {"ab", "<too long>", "cd", "yyyyy", "ef", "<too long>"};
  for (std::size_t piece = 1; piece <= text.size(); ++piece)
    EXPECT_EQ(Lines(text, piece, 5), expected) << piece;
}

TEST(LineReaderTest, ALimitCountsTheLineWithoutItsEnd) {
  const std::vector<std::string> expected = {"12345", "<too long>", "12345", "12345"};
  EXPECT_EQ(Lines("12345\r\n123456\r\n12345\n12345", 3, 5), expected);
}

TEST(LineReaderTest, ALongLineIsNotKept) {
  // 256 MiB in reads of 64 KiB: the buffer they go to never grows beyond a few of them.
  std::size_t left = std::size_t{1} << 28;
  const char* lowest = nullptr;
  const char* highest = nullptr;
  LineReader reader(
      [&](char* data, std::size_t size) -> absl::StatusOr<std::size_t> {
        const std::size_t count = std::min(left, size);
        std::memset(data, 'x', count);
        left -= count;
        if (left == 0) return count;
        // From the second half on the buffer has its final place.
        if (left < (std::size_t{1} << 27)) {
          lowest = lowest == nullptr ? data : std::min<const char*>(lowest, data);
          highest = std::max<const char*>(highest, data + size);
        }
        return count;
      },
      1 << 10);
  std::string_view line;
  EXPECT_EQ(*reader.Next(line), LineReader::Kind::kTooLong);
  EXPECT_EQ(*reader.Next(line), LineReader::Kind::kEnd);
  ASSERT_NE(lowest, nullptr);
  EXPECT_LE(highest - lowest, 1 << 20);
}

TEST(LineReaderTest, PassesTheSourcesFailureOn) {
  LineReader reader(
      [](char*, std::size_t) -> absl::StatusOr<std::size_t> {
        return absl::DataLossError("cut off");
      },
      10);
  std::string_view line;
  EXPECT_EQ(reader.Next(line).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tally
