#include "engine/workload/replay_report.h"

#include <gtest/gtest.h>

#include <string>

namespace tally {
namespace {

ReplayReport SomeReport() {
  ReplayReport report;
  report.workload = "trace.jsonl";
  report.format = "mooncake";
  report.arrivals = "the workload's own";
  report.num_read = 1'234'570;
  report.num_done = 1'234'567;
  report.num_rejected = 2;
  report.rejected_by_reason["longer than max_model_len"] = 2;
  report.num_first_outputs = 1'234'568;
  report.num_prompt_tokens = 1'000;
  report.num_computed_tokens = 700;
  report.num_local_cached_tokens = 200;
  report.num_external_cached_tokens = 100;
  report.has_prefixes = true;
  report.hit_rate_bound = 0.374;
  report.ttft.Add(0.25);
  report.inter_token.Add(0.0125);
  report.num_steps = 4;
  report.num_request_steps = 8;
  report.schedule_time = 3e-6;
  report.update_time = 1e-6;
  return report;
}

ReplayConfig Defaults() { return *ResolveReplayConfig({}); }

void ExpectLine(const std::string& table, const std::string& line) {
  EXPECT_NE(table.find(line + "\n"), std::string::npos) << line << "\nis not in\n" << table;
}

TEST(ReplayReportTest, Table) {
  const std::string table = FormatReplayReport(SomeReport(), Defaults());
  ExpectLine(table, "  done                                  1,234,567");
  ExpectLine(table, "    longer than max_model_len                   2");
  ExpectLine(table, "  unfinished                                    1");
  ExpectLine(table, "  computed                                    700  70.0 %");
  ExpectLine(table, "  local cache hit                             200  20.0 %");
  ExpectLine(table, "  external                                    100  10.0 %");
  ExpectLine(table,
             "  prompt tokens                             1,000  = computed + local + external");
  ExpectLine(table, "  hit rate                                 30.0 %  infinite cache: 37.4 %");
  ExpectLine(table, "  scheduling a step                       1.00 us");
  ExpectLine(table, "  scheduling a request-step                500 ns");
  EXPECT_NE(table.find("time to first token          250 ms       250 ms"), std::string::npos)
      << table;
  EXPECT_EQ(table.find("INTERRUPTED"), std::string::npos);
}

TEST(ReplayReportTest, SaysWhatIsWrong) {
  ReplayReport report = SomeReport();
  report.interrupted = true;
  report.num_computed_tokens = 701;
  report.has_prefixes = false;
  EXPECT_FALSE(report.accounted());
  const std::string table = FormatReplayReport(report, Defaults());
  EXPECT_NE(table.find("INTERRUPTED"), std::string::npos);
  EXPECT_NE(table.find("DIFFERS from computed + local + external"), std::string::npos);
  EXPECT_NE(table.find("the workload says nothing about prefixes"), std::string::npos);
}

TEST(ReplayReportTest, RequestsMustAddUpToo) {
  ReplayReport report = SomeReport();
  EXPECT_TRUE(report.accounted());
  report.num_first_outputs = report.num_done - 1;
  EXPECT_FALSE(report.accounted());
  report = SomeReport();
  report.num_rejected = 4;
  EXPECT_FALSE(report.accounted());
}

TEST(ReplayReportTest, Json) {
  const nlohmann::json json = ReplayReportJson(SomeReport(), Defaults());
  EXPECT_EQ(json["format"], "tally-replay/1");
  EXPECT_EQ(json["requests"]["done"], 1'234'567);
  EXPECT_EQ(json["requests"]["rejected_by_reason"]["longer than max_model_len"], 2);
  EXPECT_EQ(json["prompt_tokens"]["computed"], 700);
  EXPECT_EQ(json["prompt_tokens"]["hit_rate"], 0.3);
  EXPECT_EQ(json["prompt_tokens"]["hit_rate_of_infinite_cache"], 0.374);
  EXPECT_EQ(json["latency_s"]["time_to_first_token"]["p99"], 0.25);
  EXPECT_DOUBLE_EQ(json["run"]["scheduling_per_request_step_s"].get<double>(), 5e-7);
  ReplayReport report = SomeReport();
  report.has_prefixes = false;
  EXPECT_TRUE(ReplayReportJson(report, Defaults())["prompt_tokens"]["hit_rate_of_infinite_cache"]
                  .is_null());
}

}  // namespace
}  // namespace tally
