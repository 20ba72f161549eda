#include "conformance/trace_replayer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

namespace tally {
namespace {

constexpr char kTrace[] =
    R"({"format":"prefill-trace/1","name":"t/0","reference":"vllm 0.20.0","config":{"block_size":4,"num_blocks":10,)"
    R"("max_num_seqs":4,"max_num_batched_tokens":16,"max_model_len":36}})"
    "\n"
    R"({"in":{"op":"add","t":1,"id":"r0","prompt":[5,6],"max_tokens":1},"out":{}})"
    "\n"
    R"({"in":{"op":"schedule","t":2},"out":{"new":[["r0",[[1]],0]],"cached":[],"tokens":[["r0",2]],"preempted":[],)"
    R"("finished":[],"common_prefix":[1],"running":["r0"],"waiting":[],"skipped":[],"free_blocks":8}})"
    "\n"
    R"({"in":{"op":"abort","t":3,"ids":["r0"]},"out":{"aborted":["r0"]}})"
    "\n";

// Answers of the real engine, but for the ops that a test replaces.
class BentEngine : public TraceEngine {
 public:
  absl::StatusOr<std::string_view> Answer(std::string_view command) override {
    for (const auto& [op, answer] : bent) {
      if (command.find("\"op\":\"" + op + "\"") != std::string_view::npos) return answer;
    }
    return engine_.Answer(command);
  }

  std::map<std::string, std::string> bent;

 private:
  ProtocolEngine engine_;
};

class TraceReplayerTest : public testing::Test {
 protected:
  // The report of the text's first trace: "" when it is the same.
  std::string Replay(const std::string& text) {
    TraceReader reader(
        [text, at = std::size_t{0}](char* data,
                                    std::size_t size) mutable -> absl::StatusOr<std::size_t> {
          const std::size_t count = std::min(size, text.size() - at);
          std::memcpy(data, text.data() + at, count);
          at += count;
          return count;
        },
        "text");
    TraceHeader header;
    EXPECT_TRUE(*reader.NextTrace(header));
    TraceReplayer replayer(engine_, options_);
    const auto difference = replayer.Replay(header, reader);
    steps_ = replayer.num_steps();
    if (!difference.ok()) return difference.status().ToString();
    return difference->has_value() ? (*difference)->Describe(with_surroundings_) : "";
  }

  static std::string Replaced(std::string from, std::string to) {
    std::string text = kTrace;
    return text.replace(text.find(from), from.size(), to);
  }

  BentEngine engine_;
  CompareOptions options_;
  bool with_surroundings_ = false;
  std::int64_t steps_ = 0;
};

TEST_F(TraceReplayerTest, TheSameAnswersAreNoDifference) {
  EXPECT_EQ(Replay(kTrace), "");
  EXPECT_EQ(steps_, 3);
}

TEST_F(TraceReplayerTest, ADifferenceIsALineAPersonUnderstands) {
  EXPECT_EQ(Replay(Replaced(R"("free_blocks":8)", R"("free_blocks":9)")),
            "t/0 line 3 step 2 schedule: free_blocks: expected 9, actual 8");
  EXPECT_EQ(steps_, 2) << "the rest of the trace is not replayed";
}

TEST_F(TraceReplayerTest, TheReportShowsTheStateAroundIt) {
  with_surroundings_ = true;
  const std::string report = Replay(Replaced(R"("aborted":["r0"])", R"("aborted":[])"));
  EXPECT_NE(
      report.find("step 3 abort: aborted: expected 0 entries: [], actual 1 entries: [\"r0\"]"),
      std::string::npos)
      << report;
  EXPECT_NE(report.find(R"(state:    {"requests":{},"unfinished":0,"free_blocks":9})"),
            std::string::npos)
      << report;
}

TEST_F(TraceReplayerTest, ARefusedCommandSaysWhy) {
  const std::string report = Replay(Replaced(R"("max_tokens":1)", R"("max_tokens":0)"));
  EXPECT_NE(report.find("add: error: expected nothing, actual {\"error\":\"InvalidCommand\""),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("add.max_tokens: 0"), std::string::npos) << report;
}

TEST_F(TraceReplayerTest, ARefusedConfigurationIsADifferenceAtStepZero) {
  const std::string report = Replay(Replaced(R"("max_num_seqs":4)", R"("max_num_seqs":0)"));
  EXPECT_NE(report.find("t/0 line 0 step 0 configure"), std::string::npos) << report;
  EXPECT_NE(report.find("config.max_num_seqs: 0"), std::string::npos) << report;
  EXPECT_EQ(steps_, 0);
}

TEST_F(TraceReplayerTest, AnExpectedErrorHasToCome) {
  const std::string text =
      Replaced(R"("out":{"aborted":["r0"]})", R"("out":{"error":"ValueError","message":"no"})");
  EXPECT_EQ(Replay(text),
            "t/0 line 4 step 3 abort: error: expected \"ValueError\", actual nothing");
  engine_.bent["abort"] = R"({"error":"ValueError","message":"no"})";
  EXPECT_EQ(Replay(text), "");
  engine_.bent["abort"] = R"({"error":"ValueError","message":"yes"})";
  EXPECT_EQ(Replay(text), "t/0 line 4 step 3 abort: message: expected \"no\", actual \"yes\"");
}

TEST_F(TraceReplayerTest, AKeyThatTheRecordingLacksIsADifferenceWhenStrict) {
  engine_.bent["abort"] = R"({"aborted":["r0"],"extra":1})";
  EXPECT_EQ(Replay(kTrace), "t/0 line 4 step 3 abort: extra: expected nothing, actual 1");
  options_.strict = false;
  EXPECT_EQ(Replay(kTrace), "");
}

TEST_F(TraceReplayerTest, AnAnswerThatIsNotJsonIsAFailure) {
  engine_.bent["schedule"] = "Segmentation fault";
  EXPECT_NE(Replay(kTrace).find("Segmentation fault"), std::string::npos);
}

}  // namespace
}  // namespace tally
