#include "engine/workload/workload_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/workload/prefix_bound.h"
#include "engine/workload/test_files.h"
#include "engine/workload/token_expansion.h"

namespace tally {
namespace {

struct Contents {
  std::string format;
  bool has_arrivals = true;
  bool has_prefixes = true;
  std::vector<WorkloadRequest> requests;
  std::string error;  // what ended it early
  std::int64_t num_bad_rows = 0;
  std::vector<std::string> bad_rows;
  PrefixBound bound;
};

Contents ReadAll(const std::string& path, const WorkloadFileOptions& options = {}) {
  Contents contents;
  absl::StatusOr<std::unique_ptr<WorkloadFile>> file = WorkloadFile::Open(path, options);
  if (!file.ok()) {
    contents.error = std::string(file.status().message());
    return contents;
  }
  contents.format = (*file)->format();
  contents.has_arrivals = (*file)->has_arrivals();
  contents.has_prefixes = (*file)->has_prefixes();
  WorkloadRequest request;
  for (;;) {
    const absl::StatusOr<bool> read = (*file)->Next(request);
    if (!read.ok()) contents.error = std::string(read.status().message());
    if (!read.ok() || !*read) break;
    contents.bound.Add(request);
    contents.requests.push_back(request);
  }
  contents.num_bad_rows = (*file)->num_bad_rows();
  contents.bad_rows = (*file)->bad_rows();
  return contents;
}

// The message without the path before it.
std::string BehindPath(const std::string& message, const std::string& path) {
  EXPECT_EQ(message.substr(0, path.size()), path) << message;
  return message.substr(std::min(path.size() + 1, message.size()));
}

constexpr std::string_view kMooncake =
    R"({"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]}
{"timestamp": 1500, "input_length": 1024, "output_length": 0, "hash_ids": [1, 2]}
)";

TEST(WorkloadFileTest, Mooncake) {
  const Contents contents = ReadAll(WriteTestFile("a", kMooncake));
  EXPECT_EQ(contents.error, "");
  EXPECT_EQ(contents.format, "mooncake");
  ASSERT_EQ(contents.requests.size(), 2U);
  const WorkloadRequest& a = contents.requests[0];
  const WorkloadRequest& b = contents.requests[1];
  EXPECT_EQ(a.row, 1);
  EXPECT_EQ(a.num_prompt_tokens, 1100);
  EXPECT_EQ(a.num_output_tokens, 5);
  ASSERT_EQ(a.segments.size(), 3U);
  EXPECT_EQ(a.segments[2].num_tokens, 1100 - 1024);
  EXPECT_EQ(a.num_shared_segments, 3);
  EXPECT_EQ(b.arrival, 1.5);
  EXPECT_EQ(b.num_output_tokens, 1) << "a request without decoding samples its prefill's token";
  EXPECT_EQ(b.segments[0], a.segments[0]);
  EXPECT_EQ(b.segments[1], a.segments[1]);
  EXPECT_NE(a.output_seed, b.output_seed);
  EXPECT_EQ(contents.bound.num_reusable_tokens(), 1024);
}

TEST(WorkloadFileTest, TokensPerHashIsAParameterOfTheFile) {
  WorkloadFileOptions options;
  options.format.tokens_per_hash = 400;
  const Contents contents = ReadAll(WriteTestFile("a", kMooncake), options);
  EXPECT_EQ(contents.error, "");
  ASSERT_EQ(contents.requests.size(), 2U);
  EXPECT_EQ(contents.requests[0].segments[2].num_tokens, 300);
  EXPECT_EQ(contents.bound.num_reusable_tokens(), 800);
}

TEST(WorkloadFileTest, RtpLlm) {
  const Contents contents = ReadAll(WriteTestFile(
      "a",
      R"({"ts": 0, "il": 2100, "ol": 0, "cached": 0, "pep": "p", "bh": ["17", "18"], "priority": 70}
{"ts": 56, "il": 93, "ol": 7, "bh": [], "priority": 30}
{"ts": 57, "il": 2100, "ol": 7, "bh": ["17", "18"]})"));
  EXPECT_EQ(contents.error, "");
  EXPECT_EQ(contents.format, "rtp-llm");
  ASSERT_EQ(contents.requests.size(), 3U);
  EXPECT_EQ(contents.requests[0].priority, 70);
  EXPECT_EQ(contents.requests[0].num_output_tokens, 1);
  EXPECT_EQ(contents.requests[1].priority, 30);
  EXPECT_EQ(contents.requests[1].arrival, 0.056);
  EXPECT_EQ(contents.requests[1].segments.size(), 1U);
  // What is behind the last full block is the request's own.
  EXPECT_EQ(contents.requests[0].segments[1], contents.requests[2].segments[1]);
  EXPECT_NE(contents.requests[0].segments[2], contents.requests[2].segments[2]);
  EXPECT_EQ(contents.requests[2].segments[2].num_tokens, 52);
  EXPECT_EQ(contents.bound.num_reusable_tokens(), 2048);
}

TEST(WorkloadFileTest, QwenBailian) {
  const Contents contents = ReadAll(WriteTestFile(
      "a",
      R"({"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.25, "input_length": 40, "output_length": 3, "type": "text", "turn": 1, "hash_ids": [5, 6, 7]}
{"chat_id": 2, "parent_chat_id": 1, "timestamp": 3, "input_length": 50, "output_length": 3, "type": "text", "turn": 2, "hash_ids": [5, 6, 8]})"));
  EXPECT_EQ(contents.error, "");
  EXPECT_EQ(contents.format, "qwen-bailian");
  ASSERT_EQ(contents.requests.size(), 2U);
  EXPECT_EQ(contents.requests[0].arrival, 0.25);
  EXPECT_EQ(contents.requests[0].segments[2].num_tokens, 8);
  EXPECT_EQ(contents.requests[1].segments[3].num_tokens, 2) << "the rest of floor(50 / 16) ids";
  EXPECT_EQ(contents.bound.num_reusable_tokens(), 32);
}

TEST(WorkloadFileTest, Azure) {
  const Contents contents = ReadAll(WriteTestFile(
      "a",
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.5000000,374,44\r\n"
      "2023-11-17 00:00:01.2500001,396,109"));
  EXPECT_EQ(contents.error, "");
  EXPECT_EQ(contents.format, "azure-2023");
  EXPECT_FALSE(contents.has_prefixes);
  ASSERT_EQ(contents.requests.size(), 2U);
  EXPECT_EQ(contents.requests[0].row, 2);
  EXPECT_EQ(contents.requests[0].arrival, 0);
  EXPECT_DOUBLE_EQ(contents.requests[1].arrival, 1.7500001);
  EXPECT_NE(contents.requests[0].segments[0].seed, contents.requests[1].segments[0].seed);
  EXPECT_EQ(contents.bound.num_reusable_tokens(), 0);
}

TEST(WorkloadFileTest, Vidur) {
  const Contents contents = ReadAll(WriteTestFile(
      "a", "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8\n"));
  EXPECT_EQ(contents.error, "");
  EXPECT_EQ(contents.format, "vidur");
  EXPECT_FALSE(contents.has_arrivals);
  ASSERT_EQ(contents.requests.size(), 1U);
  EXPECT_EQ(contents.requests[0].num_prompt_tokens, 3772);
  EXPECT_EQ(contents.requests[0].num_output_tokens, 54);
}

TEST(WorkloadFileTest, PrefillTrace) {
  const Contents contents = ReadAll(WriteTestFile(
      "a",
      R"({"format":"prefill-trace/1","name":"x/0","reference":"r","config":{"block_size":8}}
{"in":{"op":"add","t":1.5,"id":"r0","prompt":[1,2,3],"max_tokens":11,"eos":2,"priority":-2},"out":{}}
{"in":{"op":"schedule","t":2},"out":{"new":[["r0",[[1]],0]]}}
{"in":{"op":"add","t":3,"id":"s","prompt":[1,2,4],"max_tokens":2,"resumable":true,"cache_salt":"y"},"out":{}}
{"in":{"op":"add","t":4,"id":"s","prompt":[9],"max_tokens":2},"out":{}}
{"format":"prefill-trace/1","name":"x/1","reference":"r","config":{}}
{"in":{"op":"add","t":0.5,"id":"r0","prompt":[1,2,3],"max_tokens":1},"out":{}})"));
  EXPECT_EQ(contents.error, "");
  EXPECT_EQ(contents.format, "prefill-trace");
  ASSERT_EQ(contents.requests.size(), 3U) << "the command that ends a session is no request";
  EXPECT_EQ(contents.requests[0].tokens, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(contents.requests[0].num_output_tokens, 11);
  EXPECT_EQ(contents.requests[0].priority, -2);
  EXPECT_EQ(contents.requests[0].arrival, 1.5);
  EXPECT_EQ(contents.requests[1].cache_salt, "y");
  EXPECT_EQ(contents.requests[2].arrival, 4.5) << "the next trace begins where the first ended";
  EXPECT_EQ(contents.bound.num_reusable_tokens(), 3) << "another salt shares nothing";
}

TEST(WorkloadFileTest, CompressedFileIsTheSame) {
  const Contents contents = ReadAll(WriteGzipTestFile("a.gz", kMooncake));
  EXPECT_EQ(contents.error, "");
  EXPECT_EQ(contents.requests.size(), 2U);
}

TEST(WorkloadFileTest, EmptyFilesHaveNoRequests) {
  for (const char* text : {"", "\n\n", "  \r\n"}) {
    const Contents contents = ReadAll(WriteTestFile("a", text));
    EXPECT_EQ(contents.error, "");
    EXPECT_EQ(contents.format, "empty");
    EXPECT_TRUE(contents.requests.empty());
  }
  EXPECT_EQ(ReadAll(WriteTestFile("b", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n")).format,
            "azure-2023");
}

TEST(WorkloadFileTest, UnknownFormats) {
  for (const std::string& text :
       {std::string("hello\n"), std::string("a,b,c\n1,2,3\n"), std::string("{\"x\": 1}\n"),
        std::string("\x7f"
                    "ELF\0\0\1",
                    7),
        std::string("[1, 2]")}) {
    const std::string path = WriteTestFile("a", text);
    EXPECT_NE(ReadAll(path).error.find("wanted a workload: Mooncake"), std::string::npos) << text;
  }
}

TEST(WorkloadFileTest, BrokenRowIsNamed) {
  const std::string path = WriteTestFile(
      "a", std::string(kMooncake) +
               R"({"timestamp": 1600, "input_length": -4, "output_length": 5, "hash_ids": []})");
  const Contents contents = ReadAll(path);
  EXPECT_EQ(BehindPath(contents.error, path),
            "3:37: input_length: -4, wanted an integer from 1 to 536870912");
  EXPECT_EQ(contents.requests.size(), 2U);
}

TEST(WorkloadFileTest, BrokenRowsArePassedOverAndCounted) {
  const std::string path = WriteTestFile(
      "a", "{ half a row\n" + std::string(kMooncake) +
               R"({"timestamp": 1, "input_length": 5, "output_length": 5, "hash_ids": [1]}
{"timestamp": 1500, "input_length": 5, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp": 2000, "input_length": 5, "output_length": 5, "hash_ids": [1]})");
  WorkloadFileOptions options;
  options.skip_bad_rows = true;
  const Contents contents = ReadAll(path, options);
  EXPECT_EQ(contents.error, "");
  EXPECT_EQ(contents.requests.size(), 3U);
  EXPECT_EQ(contents.num_bad_rows, 3);
  ASSERT_EQ(contents.bad_rows.size(), 3U);
  EXPECT_EQ(BehindPath(contents.bad_rows[1], path),
            "4:1: arrives at 0.001 s, wanted no time before the row above, 1.5 s");
  EXPECT_EQ(BehindPath(contents.bad_rows[2], path),
            "5:60: hash_ids: 2 ids, wanted 0 or 1 for 5 tokens at 512 an id");
}

TEST(WorkloadFileTest, BrokenCsvRows) {
  const std::string azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const auto azure_error = [&](const std::string& row) {
    const std::string path = WriteTestFile("a", azure + row + "\n");
    return BehindPath(ReadAll(path).error, path);
  };
  EXPECT_EQ(azure_error("2023-13-16 18:15:46.68,374,44"),
            "2:1: TIMESTAMP: 2023-13-16 18:15:46.68, wanted a time like 2023-11-16 "
            "18:17:03.9799600");
  EXPECT_EQ(azure_error("2023-11-16 18:15:46,0,44"),
            "2:21: ContextTokens: 0, wanted an integer from 1 to 536870912");
  EXPECT_EQ(azure_error("2023-11-16 18:15:46,1,-1"),
            "2:23: GeneratedTokens: -1, wanted an integer from 0 to 536870912");
  EXPECT_EQ(azure_error("2023-11-16 18:15:46,1"),
            "2:22: 2 fields, wanted 3: TIMESTAMP,ContextTokens,GeneratedTokens");
  for (const char* time : {"", "2023", "2023-11-16", "2023-11-16 24:00:00", "2023-11-16 18:15:46.",
                           "2023-11-16 18:15:46.12345678", "2023-02-30 18:15:46"}) {
    EXPECT_NE(azure_error(std::string(time) + ",1,1").find("TIMESTAMP"), std::string::npos) << time;
  }
  const std::string path = WriteTestFile(
      "b", "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n1,2,4,0.5\n");
  EXPECT_EQ(BehindPath(ReadAll(path).error, path),
            "2:5: num_total_tokens: 4, wanted num_prefill_tokens + num_decode_tokens, 3");
}

}  // namespace
}  // namespace tally
