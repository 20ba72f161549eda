#include "engine/protocol/protocol_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace tally {
namespace {

constexpr char kConfigure[] =
    R"({"op":"configure","config":{"block_size":4,"num_blocks":10,"max_num_seqs":2,)"
    R"("max_num_batched_tokens":16,"max_model_len":32}})";

// The answers to `input`, given in pieces of `piece` bytes.
std::vector<std::string> Serve(const std::string& input, std::size_t piece) {
  ProtocolEngine engine;
  std::string output;
  std::size_t at = 0;
  const absl::Status status = ServeProtocol(
      engine,
      [&](char* data, std::size_t size) -> absl::StatusOr<std::size_t> {
        const std::size_t count = std::min({piece, size, input.size() - at});
        std::memcpy(data, input.data() + at, count);
        at += count;
        return count;
      },
      [&](std::string_view bytes) {
        output.append(bytes);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < output.size();) {
    const std::size_t end = output.find('\n', start);
    EXPECT_NE(end, std::string::npos) << "an answer without a line end";
    lines.push_back(output.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

TEST(ProtocolServerTest, AnswersEachLineWithOneLine) {
  const auto lines = Serve(
      std::string(kConfigure) + "\r\n\n{\"op\":\"state\"}\nnonsense\n{\"op\":\"state\"}\n", 7);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], R"({"engine":"tally 0.1"})");
  EXPECT_EQ(lines[1], R"({"requests":{},"unfinished":0,"free_blocks":9})");
  EXPECT_NE(lines[2].find("\"error\""), std::string::npos);
  EXPECT_EQ(lines[3], lines[1]);
}

TEST(ProtocolServerTest, EndsCleanlyWhenInputEndsInTheMiddleOfACommand) {
  const auto lines = Serve(std::string(kConfigure) + "\n{\"op\":\"sta", 1000);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[1].find("\"error\":\"InvalidCommand\""), std::string::npos);
  EXPECT_TRUE(Serve("", 10).empty());
}

TEST(ProtocolServerTest, RefusesALineOf100MegabytesAndGoesOn) {
  std::string input = kConfigure;
  input.append("\n{\"op\":\"add\",\"id\":\"")
      .append(100'000'000, 'x')
      .append("\"}\n{\"op\":\"state\"}\n");
  const auto lines = Serve(input, 1 << 20);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[1].find("line 2 is too long"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[2], R"({"requests":{},"unfinished":0,"free_blocks":9})");
}

TEST(ProtocolServerTest, AnswersBeforeItAsksForMore) {
  ProtocolEngine engine;
  const std::string command = std::string(kConfigure) + "\n";
  std::string output;
  int reads = 0;
  const absl::Status status = ServeProtocol(
      engine,
      [&](char* data, std::size_t) -> absl::StatusOr<std::size_t> {
        if (reads++ > 0) {
          EXPECT_FALSE(output.empty()) << "a peer that waits for the answer would wait for ever";
          return 0;
        }
        std::memcpy(data, command.data(), command.size());
        return command.size();
      },
      [&](std::string_view bytes) {
        output.append(bytes);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(reads, 2);
}

TEST(ProtocolServerTest, AFailingSinkEndsTheService) {
  ProtocolEngine engine;
  int reads = 0;
  const absl::Status status = ServeProtocol(
      engine,
      [&](char* data, std::size_t) -> absl::StatusOr<std::size_t> {
        ++reads;
        std::memcpy(data, "{}\n", 3);
        return 3;
      },
      [](std::string_view) { return absl::UnavailableError("gone"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(reads, 1);
}

}  // namespace
}  // namespace tally
