#include "conformance/json_compare.h"

#include <gtest/gtest.h>

#include <string>

namespace tally {
namespace {

class JsonCompareTest : public testing::Test {
 protected:
  // "path: expected / actual" of the first difference, or "".
  std::string Compare(std::string_view expected, std::string_view actual,
                      std::string_view op = "update") {
    JsonComparer comparer(options_);
    const auto difference =
        comparer.Compare(op, expected_.parse(expected.data(), expected.size()).value(),
                         actual_.parse(actual.data(), actual.size()).value());
    count_ = comparer.count();
    if (!difference) return "";
    return difference->path + ": " + difference->expected + " / " + difference->actual;
  }

  CompareOptions options_;
  CompareCount count_;
  simdjson::dom::parser expected_;
  simdjson::dom::parser actual_;
};

TEST_F(JsonCompareTest, NamesTheFirstDifference) {
  EXPECT_EQ(Compare(R"({"a":[1,{"b":2}],"c":3})", R"({"c":3,"a":[1,{"b":2}]})"), "");
  EXPECT_EQ(count_.compared, 3);
  EXPECT_EQ(Compare(R"({"a":[1,{"b":2}],"c":3})", R"({"c":4,"a":[1,{"b":5}]})"), "a[1].b: 2 / 5");
  EXPECT_EQ(Compare(R"({"a":[[1],[2]]})", R"({"a":[[1],[3]]})"), "a[1][0]: 2 / 3");
}

TEST_F(JsonCompareTest, ArraysAreOrderedAndOfOneLength) {
  EXPECT_EQ(Compare(R"({"a":[1,2]})", R"({"a":[2,1]})"), "a[0]: 1 / 2");
  EXPECT_EQ(Compare(R"({"a":[1,2]})", R"({"a":[1]})"), "a: 2 entries: [1,2] / 1 entries: [1]");
  EXPECT_EQ(Compare(R"({"a":[]})", R"({"a":[1]})"), "a: 0 entries: [] / 1 entries: [1]");
}

TEST_F(JsonCompareTest, KindsAreToldApart) {
  EXPECT_EQ(Compare(R"({"a":1})", R"({"a":"1"})"), "a: 1 / \"1\"");
  EXPECT_EQ(Compare(R"({"a":null})", R"({"a":0})"), "a: null / 0");
  EXPECT_EQ(Compare(R"({"a":null})", R"({"a":null})"), "");
  EXPECT_EQ(Compare(R"({"a":true})", R"({"a":1})"), "a: true / 1");
  EXPECT_EQ(Compare(R"({"a":true})", R"({"a":false})"), "a: true / false");
  EXPECT_EQ(Compare(R"({"a":{}})", R"({"a":[]})"), "a: {} / []");
  EXPECT_EQ(Compare(R"({"a":"x"})", R"({"a":"y"})"), "a: \"x\" / \"y\"");
}

TEST_F(JsonCompareTest, NumbersMayDifferInTheLastDigits) {
  EXPECT_EQ(Compare(R"({"a":1.0})", R"({"a":1})"), "");
  EXPECT_EQ(Compare(R"({"a":0.1})", R"({"a":0.10000000000000002})"), "");
  EXPECT_EQ(Compare(R"({"a":1000000.5})", R"({"a":1000000.5009})"), "");
  EXPECT_NE(Compare(R"({"a":1.5})", R"({"a":1.50000001})"), "");
  EXPECT_NE(Compare(R"({"a":9007199254740993})", R"({"a":9007199254740992})"), "")
      << "integers are equal or not";
  EXPECT_NE(Compare(R"({"a":1e12})", R"({"a":1.00000001e12})"), "");
}

TEST_F(JsonCompareTest, AMissingKeyIsADifference) {
  EXPECT_EQ(Compare(R"({"a":1,"b":0})", R"({"a":1})"), "b: 0 / nothing");
}

TEST_F(JsonCompareTest, StrictAlsoRefusesWhatTheRecordingLacks) {
  EXPECT_EQ(Compare(R"({"a":1})", R"({"a":1,"b":0})"), "b: nothing / 0");
  EXPECT_EQ(Compare(R"({"a":{}})", R"({"a":{"group":0}})"), "") << "left out when it is 0";
  options_.strict = false;
  EXPECT_EQ(Compare(R"({"a":1})", R"({"a":1,"b":0})"), "");
}

TEST_F(JsonCompareTest, AnUnlistedSampleIsZeroStrictOrNot) {
  options_.strict = false;
  EXPECT_EQ(Compare(R"({"metrics":{"x":1}})", R"({"metrics":{"x":1,"y":0.0}})", "metrics"), "");
  EXPECT_EQ(Compare(R"({"metrics":{"x":1}})", R"({"metrics":{"x":1,"y":2}})", "metrics"),
            "metrics.y: nothing / 2");
  EXPECT_EQ(Compare(R"({"prefill":{"x":1}})", R"({"prefill":{"x":1,"y":2}})"),
            "prefill.y: nothing / 2");
}

TEST_F(JsonCompareTest, IgnoredKeysAreCountedByName) {
  options_.ignored_keys = {"b"};
  EXPECT_EQ(Compare(R"({"a":[{"b":1},{"b":2}],"c":3})", R"({"a":[{"b":7},{}],"c":3})"), "");
  EXPECT_EQ(count_.compared, 1);
  EXPECT_EQ(count_.left_out.at("b"), 2);
}

constexpr char kPlan[] =
    R"({"new":[["r0",[[1,2]],4]],"tokens":[["r0",5]],"running":["r0"],"free_blocks":7})";

TEST_F(JsonCompareTest, DecisionsLeaveBlocksAndQueuesOut) {
  options_.level = Level::kDecisions;
  EXPECT_EQ(
      Compare(kPlan,
              R"({"new":[["r0",[[8,9]],4]],"tokens":[["r0",5]],"running":[],"free_blocks":1})",
              "schedule"),
      "");
  EXPECT_EQ(count_.compared, 4);
  EXPECT_EQ(count_.left_out.at("free_blocks"), 1);
  EXPECT_EQ(count_.left_out.at("new[][1]"), 1);
  EXPECT_EQ(
      Compare(kPlan,
              R"({"new":[["r0",[[1,2]],0]],"tokens":[["r0",5]],"running":[],"free_blocks":1})",
              "schedule"),
      "new[0][2]: 4 / 0");
  EXPECT_NE(
      Compare(kPlan,
              R"({"new":[["r0",[[1,2]],4]],"tokens":[["r0",6]],"running":[],"free_blocks":1})",
              "schedule"),
      "");
  options_.level = Level::kBlocks;
  EXPECT_EQ(
      Compare(kPlan,
              R"({"new":[["r0",[[8,9]],4]],"tokens":[["r0",5]],"running":["r0"],"free_blocks":7})",
              "schedule"),
      "new[0][1][0][0]: 1 / 8");
}

TEST_F(JsonCompareTest, AccountingLooksAtOutputsAndTokenCounters) {
  options_.level = Level::kAccounting;
  EXPECT_EQ(Compare(kPlan, "{}", "schedule"), "");
  constexpr char kResult[] =
      R"({"outputs":[{"id":"r0","tokens":[1],"prefill":{"num_cached_tokens":4},"events":[["queued",1]]}],"stats":{"running":1}})";
  EXPECT_EQ(Compare(kResult,
                    R"({"outputs":[{"id":"r0","tokens":[1],"prefill":{"num_cached_tokens":4}}]})"),
            "");
  EXPECT_EQ(Compare(kResult,
                    R"({"outputs":[{"id":"r0","tokens":[1],"prefill":{"num_cached_tokens":0}}]})"),
            "outputs[0].prefill.num_cached_tokens: 4 / 0");
  constexpr char kMetrics[] =
      R"({"metrics":{"vllm:prompt_tokens_total":5,"vllm:num_requests_running":2}})";
  EXPECT_EQ(Compare(kMetrics, R"({"metrics":{"vllm:prompt_tokens_total":5}})", "metrics"), "");
  EXPECT_NE(Compare(kMetrics, R"({"metrics":{"vllm:prompt_tokens_total":6}})", "metrics"), "");
}

TEST_F(JsonCompareTest, AnErrorIsComparedAtEveryLevel) {
  for (const Level level : {Level::kAccounting, Level::kDecisions, Level::kBlocks}) {
    options_.level = level;
    EXPECT_NE(Compare(R"({"error":"ValueError","message":"x"})", "{}", "schedule"), "");
  }
}

}  // namespace
}  // namespace tally
