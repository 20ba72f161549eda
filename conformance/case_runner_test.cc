#include "conformance/case_runner.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

namespace tally {
namespace {

using nlohmann::json;

std::string Difference(const std::string& expected, const std::string& actual) {
  return PartDiffers(json::parse(expected), json::parse(actual)).value_or("");
}

TEST(PartDiffersTest, ComparesWhatIsListed) {
  EXPECT_EQ(Difference(R"({"a":1})", R"({"a":1,"b":2})"), "");
  EXPECT_EQ(Difference(R"({"a":{"b":[1,{"c":2}]}})", R"({"a":{"b":[1,{"c":2,"d":3}]}})"), "");
  EXPECT_EQ(Difference(R"({"a":{"b":[1,{"c":2}]}})", R"({"a":{"b":[1,{"c":3}]}})"),
            "a.b[1].c: expected 2, got 3");
  EXPECT_EQ(Difference(R"({"a":1})", "{}"), "a: expected 1, got nothing");
  EXPECT_EQ(Difference(R"({"a":1})", R"({"a":"1"})"), "a: expected 1, got \"1\"");
  EXPECT_EQ(Difference(R"({"a":{}})", R"({"a":[]})"), "a: expected {}, got []");
}

TEST(PartDiffersTest, ComparesArraysAsAWhole) {
  EXPECT_EQ(Difference("[1,2]", "[1,2,3]"), ": expected [1,2], got [1,2,3]");
  EXPECT_EQ(Difference("[[]]", "[[1]]"), "[0]: expected [], got [1]");
  EXPECT_EQ(Difference("[1,2]", "[2,1]"), "[0]: expected 1, got 2");
}

TEST(PartDiffersTest, NullAndZeroMayBeAbsent) {
  EXPECT_EQ(Difference(R"({"a":null,"b":0,"c":0.0})", "{}"), "");
  EXPECT_EQ(Difference(R"({"a":null})", R"({"a":0})"), "a: expected null, got 0");
  EXPECT_EQ(Difference(R"({"b":0})", R"({"b":1})"), "b: expected 0, got 1");
}

TEST(PartDiffersTest, NumbersWithAFractionMayDifferALittle) {
  EXPECT_EQ(Difference("[33]", "[33.0]"), "");
  EXPECT_EQ(Difference("[0.1]", "[0.10000000000000002]"), "");
  EXPECT_EQ(Difference("[0.1]", "[0.1001]"), "[0]: expected 0.1, got 0.1001");
}

constexpr char kHeader[] =
    R"({"format":"prefill-cases/1","id":"C1","title":"t","sources":[],"config":{"block_size":4,)"
    R"("num_blocks":20,"max_num_seqs":4,"max_num_batched_tokens":8,"max_model_len":64}})";
constexpr char kAdd[] =
    R"({"in":{"op":"add","id":"a","prompt":[1,2,3,4,5,6,7,8,9,10],"max_tokens":2}})";

std::string Lines(std::initializer_list<std::string> lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

absl::StatusOr<std::vector<Case>> Read(const std::string& text) {
  const std::string path = testing::TempDir() + "/cases.jsonl";
  std::ofstream(path) << text;
  return ReadCases(path);
}

std::string ReadFault(const std::string& text) {
  const auto cases = Read(text);
  if (cases.ok()) return "";
  const std::string message(cases.status().message());
  return message.substr(message.find(".jsonl") + 6);
}

TEST(ReadCasesTest, NamesWhatIsWrong) {
  const std::string step = R"({"in":{"op":"step"},"expect":{}})";
  const std::string header = kHeader;
  EXPECT_EQ(ReadFault(Lines({header, step})), "");
  EXPECT_EQ(ReadFault(Lines({step})), ":1: format: missing in the first line");
  EXPECT_EQ(ReadFault(Lines({header, "{"})), ":2: no JSON");
  EXPECT_EQ(ReadFault(Lines({header, "", "[]"})), ":3: wanted a JSON object");
  EXPECT_EQ(ReadFault(Lines({header, R"({"in":{}})"})), ":2: in.op: missing");
  EXPECT_EQ(ReadFault(Lines({header, R"({"in":{"op":"step"},"expects":{}})"})),
            ":2: expects: not a key of this object");
  EXPECT_EQ(ReadFault(Lines({header, step, header, step})), ":3: id: C1 is in use");
  EXPECT_EQ(ReadFault(Lines({R"({"format":"prefill-cases/1","id":"C1"})"})), ":1: title: missing");
  EXPECT_FALSE(ReadCases("/nowhere.jsonl").ok());
}

TEST(ReadCasesTest, ACaseExpectsSomethingOfEveryBehavior) {
  const auto cases = Read(Lines({kHeader, R"({"in":{"op":"step"},"expect_corrected":{}})"}));
  EXPECT_EQ(cases.status().message(), "C1: expects nothing of vllm_0_20");
}

// Tally, but for the ops that a test answers itself.
class BentEngine : public TraceEngine {
 public:
  absl::StatusOr<std::string_view> Answer(std::string_view command) override {
    const auto bent = bent_answers.find(json::parse(command).at("op"));
    if (bent == bent_answers.end()) return engine_.Answer(command);
    return bent->second;
  }

  std::map<std::string, std::string> bent_answers;

 private:
  ProtocolEngine engine_;
};

// Where the case differs, without the answer itself; "" if it does not.
std::string Outcome(const std::string& steps, const std::string& behavior = "corrected",
                    std::map<std::string, std::string> bent = {}) {
  const auto cases = Read(Lines({kHeader, kAdd}) + steps);
  EXPECT_TRUE(cases.ok()) << cases.status();
  BentEngine engine;
  engine.bent_answers = std::move(bent);
  const auto difference = RunCase(cases->at(0), behavior, engine);
  EXPECT_TRUE(difference.ok());
  const std::string text = difference->value_or("");
  return text.substr(0, text.find('\n'));
}

TEST(RunCaseTest, StepsSampleWhosePrefillIsComplete) {
  EXPECT_EQ(
      Outcome(Lines(
          {R"({"in":{"op":"step"},"expect":{"schedule":{"tokens":[["a",8]]},"update":{"outputs":[]}}})",
           R"({"in":{"op":"step"},"expect":{"update":{"outputs":[{"id":"a","tokens":[5001]}]}}})",
           R"({"in":{"op":"step"},"expect":{"update":{"outputs":[{"id":"a","tokens":[5002]}]}}})",
           R"({"in":{"op":"summary"},"expect":{"steps":3,"scheduled_tokens":11,"requests":)"
           R"({"a":{"num_tokens":2,"tokens":[5001,5002],"finish":"length","prefill":[{}]}}}})"})),
      "");
  EXPECT_EQ(Outcome(Lines({R"({"in":{"op":"step","until_done":9},"expect":{}})",
                           R"({"in":{"op":"summary"},"expect":{"steps":3}})"})),
            "");
  EXPECT_EQ(Outcome(R"({"in":{"op":"step","until_done":2},"expect":{}})"),
            R"(line 3, step: {"error":"NotDone","message":"after 2 steps"})");
}

TEST(RunCaseTest, SaysWhereAnAnswerDiffers) {
  EXPECT_EQ(Outcome(R"({"in":{"op":"schedule"},"expect":{"free_blocks":1}})"),
            "line 3, schedule: expect: free_blocks: expected 1, got 17");
  const std::string own =
      R"({"in":{"op":"schedule"},"expect_corrected":{"free_blocks":1},"expect_vllm_0_20":{"free_blocks":17}})";
  EXPECT_EQ(Outcome(own), "line 3, schedule: expect_corrected: free_blocks: expected 1, got 17");
  EXPECT_EQ(Outcome(own, "vllm_0_20"), "");
}

TEST(RunCaseTest, AnErrorHasToBeExpectedAndEndsTheCase) {
  const std::map<std::string, std::string> bent = {
      {"schedule", R"({"error":"AssertionError","message":""})"}};
  const std::string expecting =
      R"({"in":{"op":"step"},"expect":{"error":"AssertionError","message":""}})";
  const std::string wrong = R"({"in":{"op":"state"},"expect":{"free_blocks":-1}})";
  EXPECT_EQ(Outcome(Lines({expecting, wrong}), "corrected", bent), "");
  EXPECT_EQ(Outcome(R"({"in":{"op":"step"},"expect":{}})", "corrected", bent),
            R"(line 3, step: {"error":"AssertionError","message":""})");
  EXPECT_NE(Outcome(Lines({expecting, wrong})), "");  // an engine that goes on
}

TEST(RunCaseTest, AnAnswerOfAnotherShapeIsNoAnswer) {
  BentEngine engine;
  const auto cases = Read(Lines({kHeader, kAdd, R"({"in":{"op":"step"},"expect":{}})"}));
  ASSERT_TRUE(cases.ok());
  for (const char* answer : {"{}", "[]", "{", R"({"tokens":1})", R"({"tokens":[["a"]]})"}) {
    engine.bent_answers = {{"schedule", answer}};
    EXPECT_EQ(RunCase(cases->at(0), "corrected", engine).status().code(),
              absl::StatusCode::kDataLoss)
        << answer;
  }
}

TEST(RunCaseTest, FindsABlockInTwoGroups) {
  const std::map<std::string, std::string> bent = {
      {"schedule",
       R"({"new":[["a",[[0,5,3],[5,0,2]],8]],"cached":[],"tokens":[["a",2]],"free_blocks":1})"}};
  const std::string steps =
      Lines({R"({"in":{"op":"schedule"}})",
             R"({"in":{"op":"summary"},"expect":{"shared_by_groups":{"a":[5]}}})"});
  EXPECT_EQ(Outcome(steps, "corrected", bent), "");
  EXPECT_NE(Outcome(steps), "");
}

}  // namespace
}  // namespace tally
