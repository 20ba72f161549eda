#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "conformance/trace_reader.h"
#include "conformance/trace_writer.h"

namespace tally {
namespace {

constexpr char kHeader[] =
    R"({"format":"prefill-trace/1","name":"n","reference":"r","config":{"a":1}})";
constexpr char kStep[] = R"({"in":{"op":"state"},"out":{"x":[1, 2]}})";

std::string TemporaryPath(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

LineReader::Source Text(std::string text) {
  return [text, at = std::size_t{0}](char* data,
                                     std::size_t size) mutable -> absl::StatusOr<std::size_t> {
    const std::size_t count = std::min(size, text.size() - at);
    std::memcpy(data, text.data() + at, count);
    at += count;
    return count;
  };
}

// Each trace's name and the commands and answers of its steps, or the first status.
absl::StatusOr<std::vector<std::string>> ReadAll(TraceReader& reader) {
  std::vector<std::string> read;
  TraceHeader header;
  TraceStep step;
  while (true) {
    const auto trace = reader.NextTrace(header);
    if (!trace.ok()) return trace.status();
    if (!*trace) return read;
    read.push_back(header.name + " " + header.reference + " " + header.config);
    while (true) {
      const auto more = reader.NextStep(step);
      if (!more.ok()) return more.status();
      if (!*more) break;
      read.push_back(std::to_string(step.line) + " " + step.in + " " + step.out);
    }
  }
}

absl::StatusOr<std::vector<std::string>> ReadText(const std::string& text) {
  TraceReader reader(Text(text), "text");
  return ReadAll(reader);
}

TEST(TraceReaderTest, ReadsTracesOneAfterTheOther) {
  const auto read =
      ReadText(std::string(kHeader) + "\n" + kStep + "\n" + kStep + "\n" + kHeader + "\n");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read,
            (std::vector<std::string>{"n r {\"a\":1}", "2 {\"op\":\"state\"} {\"x\":[1, 2]}",
                                      "3 {\"op\":\"state\"} {\"x\":[1, 2]}", "n r {\"a\":1}"}));
}

TEST(TraceReaderTest, LineEndsEmptyLinesAndTheOrderOfKeysDoNotMatter) {
  const auto read = ReadText(
      "\r\n{\"config\":{}, "
      "\"name\":\"m\",\"reference\":\"r\",\"format\":\"prefill-trace/1\",\"note\":[1]}\r\n\r\n"
      "{\"out\":{},\"in\":{\"op\":\"state\"}}");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, (std::vector<std::string>{"m r {}", "4 {\"op\":\"state\"} {}"}));
}

TEST(TraceReaderTest, AnEmptyTextHoldsNoTrace) {
  EXPECT_EQ(ReadText("")->size(), 0U);
  EXPECT_EQ(ReadText("\n\r\n")->size(), 0U);
}

TEST(TraceReaderTest, StepsThatAreNotTakenArePassedOver) {
  TraceReader reader(Text(std::string(kHeader) + "\n" + kStep + "\n" + kStep + "\n" + kHeader +
                          "\n" + kStep + "\n"),
                     "t");
  TraceHeader header;
  TraceStep step;
  EXPECT_TRUE(*reader.NextTrace(header));
  EXPECT_TRUE(*reader.NextStep(step));
  EXPECT_TRUE(*reader.NextTrace(header));
  EXPECT_TRUE(*reader.NextStep(step));
  EXPECT_EQ(step.line, 5);
  EXPECT_FALSE(*reader.NextStep(step));
  EXPECT_FALSE(*reader.NextTrace(header));
}

TEST(TraceReaderTest, FaultsNameFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"nonsense", "text:1: "},
      {"[1]", "text:1: wanted a JSON object"},
      {"{\"a\":1}", "text:1: wanted a header"},
      {std::string(kStep), "text:1: a step before the first header"},
      {std::string(kHeader) + "\n{\"in\":{\"op\":\"state\"}}", "text:2: out: wanted an object"},
      {std::string(kHeader) + "\n{\"in\":{\"op\":\"sta", "text:2: "},
      {std::string(kHeader) + "\n{\"in\":{},\"out\":3}", "text:2: out: wanted an object"},
      {R"({"format":"prefill-trace/2","name":"n","reference":"r","config":{}})",
       "format: prefill-trace/2, wanted"},
      {R"({"format":"prefill-trace/1","reference":"r","config":{}})", "text:1: name"},
      {R"({"format":"prefill-trace/1","name":"n","config":{}})", "text:1: reference"},
      {R"({"format":"prefill-trace/1","name":"n","reference":"r","config":[]})", "text:1: config"},
      {"{\"format\":\"prefill-trace/1\",\"name\":\"\xFF\",\"reference\":\"r\",\"config\":{}}",
       "text:1: "},
  };
  for (const auto& [text, message] : cases) {
    const auto read = ReadText(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(std::string(read.status().message()).find(message), std::string::npos)
        << read.status() << " for " << text;
  }
}

TEST(TraceReaderTest, AMissingFileIsNotFound) {
  EXPECT_EQ(TraceReader::Open(TemporaryPath("no_such_file")).status().code(),
            absl::StatusCode::kNotFound);
}

class TraceFileTest : public testing::TestWithParam<const char*> {};

TEST_P(TraceFileTest, WhatWasWrittenIsReadBack) {
  const std::string path = TemporaryPath(GetParam());
  auto writer = TraceWriter::Create(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->BeginTrace({"fcfs/\"0\"", "vllm 0.20.0", R"({"block_size":4})"}).ok());
  ASSERT_TRUE((*writer)->AddStep(R"({"op":"state"})", "{}").ok());
  ASSERT_TRUE((*writer)->BeginTrace({"fcfs/1", "vllm 0.20.0", "{}"}).ok());
  ASSERT_TRUE((*writer)->Close().ok());
  auto reader = TraceReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto read = ReadAll(**reader);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, (std::vector<std::string>{"fcfs/\"0\" vllm 0.20.0 {\"block_size\":4}",
                                             "2 {\"op\":\"state\"} {}", "fcfs/1 vllm 0.20.0 {}"}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, TraceFileTest, testing::Values("plain.jsonl", "packed.jsonl.gz"),
                         [](const auto& test) { return test.param[1] == 'l' ? "Plain" : "Gzip"; });

TEST(TraceFileTest, ACompressedFileThatIsCutOffIsDataLoss) {
  const std::string path = TemporaryPath("whole.jsonl.gz");
  auto writer = TraceWriter::Create(path);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->BeginTrace({"n", "r", "{}"}).ok());
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE((*writer)
                    ->AddStep(R"({"op":"state","t":)" + std::to_string(i * 7919 % 1000) + "}", "{}")
                    .ok());
  }
  ASSERT_TRUE((*writer)->Close().ok());
  const std::string bytes = ReadBytes(path);
  ASSERT_GT(bytes.size(), 100U);
  EXPECT_EQ(bytes.substr(0, 2), "\x1f\x8b");
  const std::string cut = TemporaryPath("cut.jsonl.gz");
  for (const std::size_t length :
       {bytes.size() - 1, bytes.size() - 8, bytes.size() / 2, std::size_t{30}}) {
    WriteBytes(cut, bytes.substr(0, length));
    auto reader = TraceReader::Open(cut);
    ASSERT_TRUE(reader.ok());
    const auto read = ReadAll(**reader);
    ASSERT_FALSE(read.ok()) << length << " of " << bytes.size() << " bytes read as " << read->size()
                            << " lines";
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(TraceFileTest, ADamagedCompressedFileIsDataLoss) {
  const std::string path = TemporaryPath("damaged.jsonl.gz");
  auto writer = TraceWriter::Create(path);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->BeginTrace({"n", "r", "{}"}).ok());
  ASSERT_TRUE((*writer)->Close().ok());
  std::string bytes = ReadBytes(path);
  bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 1);  // of the check sum
  WriteBytes(path, bytes);
  auto reader = TraceReader::Open(path);
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(ReadAll(**reader).ok());
}

TEST(TraceWriterTest, TheSameContentIsTheSameBytes) {
  std::string bytes[2];
  for (std::string& out : bytes) {
    const std::string path = TemporaryPath("same.jsonl.gz");
    auto writer = TraceWriter::Create(path);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->BeginTrace({"n", "r", "{}"}).ok());
    ASSERT_TRUE((*writer)->Close().ok());
    out = ReadBytes(path);
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(TraceWriterTest, AFolderThatIsNotThereIsAStatus) {
  EXPECT_FALSE(TraceWriter::Create(TemporaryPath("no/such/folder/x.gz")).ok());
}

}  // namespace
}  // namespace tally
