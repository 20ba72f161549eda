#include "conformance/process_engine.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "conformance/trace_reader.h"
#include "conformance/trace_replayer.h"

namespace tally {
namespace {

std::string AnswerOf(ProcessEngine& engine, std::string_view command) {
  const absl::StatusOr<std::string_view> answer = engine.Answer(command);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? std::string(*answer) : "";
}

TEST(ProcessEngineTest, ARecordingIsReplayedOverPipes) {
  ProcessEngine engine({.command = "exec engine/cli/tally engine --behavior vllm_0_20"});
  TraceReplayer replayer(engine, {});
  const auto reader = TraceReader::Open("golden/vllm-0.20.0/large.jsonl.gz");
  ASSERT_TRUE(reader.ok()) << reader.status();
  TraceHeader header;
  int traces = 0;
  for (; *(*reader)->NextTrace(header); ++traces) {
    const auto difference = replayer.Replay(header, **reader);
    ASSERT_TRUE(difference.ok()) << difference.status();
    EXPECT_FALSE(difference->has_value()) << (*difference)->Describe(true);
  }
  EXPECT_EQ(traces, 4);
  EXPECT_EQ(engine.num_starts(), 1);
}

TEST(ProcessEngineTest, AnEngineThatEndsIsAResultAndStartedAgain) {
  ProcessEngine engine({.command = "read a; echo '{\"engine\":\"x\"}'; read b; exit 3"});
  for (int i = 1; i <= 2; ++i) {
    EXPECT_EQ(AnswerOf(engine, "{}"), R"({"engine":"x"})");
    EXPECT_EQ(AnswerOf(engine, "{}"), R"({"error":"EngineExited","message":"exit status 3"})");
    EXPECT_EQ(engine.num_starts(), i);
  }
}

TEST(ProcessEngineTest, ASignalIsTold) {
  ProcessEngine engine({.command = "read a; kill -9 $$"});
  EXPECT_EQ(AnswerOf(engine, "{}"), R"({"error":"EngineExited","message":"signal 9"})");
}

TEST(ProcessEngineTest, AnEngineThatHangsIsEndedWithItsChildren) {
  ProcessEngine engine(
      {.command = "sleep 1000 & sleep 1000", .timeout = std::chrono::milliseconds(200)});
  EXPECT_EQ(AnswerOf(engine, "{}"),
            R"({"error":"EngineTimeout","message":"no answer within 200 ms"})");
  // One that does not even read.
  EXPECT_EQ(AnswerOf(engine, std::string(8 << 20, 'x')),
            R"({"error":"EngineTimeout","message":"it does not read"})");
}

TEST(ProcessEngineTest, WhatIsNoObjectIsNoAnswer) {
  ProcessEngine engine({.command = "while read a; do echo hello; done"});
  EXPECT_EQ(AnswerOf(engine, "{}"),
            R"({"error":"EngineAnswer","message":"no JSON object, 5 bytes"})");
  ProcessEngine endless({.command = "yes | tr -d '\\n'", .max_answer_bytes = 1 << 20});
  EXPECT_EQ(AnswerOf(endless, "{}"),
            R"({"error":"EngineAnswer","message":"longer than 1048576 bytes"})");
}

TEST(ProcessEngineTest, ACommandThatIsNotThereIsTold) {
  ProcessEngine engine({.command = "exec /nonexistent/engine 2>/dev/null"});
  EXPECT_EQ(AnswerOf(engine, "{}"), R"({"error":"EngineExited","message":"exit status 127"})");
}

}  // namespace
}  // namespace tally
