#include "engine/accounting/engine_metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace tally {
namespace {

std::map<std::string, double> Samples(const EngineMetrics& metrics) {
  std::map<std::string, double> samples;
  metrics.ForEachSample([&](const MetricSample& sample) {
    std::string name(sample.name);
    if (!sample.label.empty()) {
      name.append("{").append(sample.label).append("=").append(sample.label_value).append("}");
    }
    EXPECT_TRUE(samples.emplace(name, sample.value).second) << name << " twice";
  });
  return samples;
}

TEST(EngineMetricsTest, AllSeriesExistFromTheStart) {
  const auto samples = Samples(EngineMetrics({.max_model_len = 100}));
  EXPECT_EQ(samples.at("vllm:engine_sleep_state{sleep_state=awake}"), 1);
  EXPECT_EQ(samples.at("vllm:prompt_tokens_by_source_total{source=external_kv_transfer}"), 0);
  EXPECT_EQ(samples.at("vllm:request_success_total{finished_reason=repetition}"), 0);
  EXPECT_EQ(samples.at("vllm:request_prompt_tokens_bucket{le=100.0}"), 0);
  EXPECT_EQ(samples.count("vllm:spec_decode_num_drafts_total"), 0U)
      << "only with speculative decoding";
  double sum = 0;
  for (const auto& [name, value] : samples) sum += value;
  EXPECT_EQ(sum, 1) << "everything but the sleep state is zero";
}

TEST(EngineMetricsTest, GaugesHoldTheLastStepAndCountersAdd) {
  EngineMetrics metrics({.max_model_len = 100});
  SchedulerStats stats;
  stats.num_running = 3;
  stats.num_waiting = 2;
  stats.num_skipped = 1;
  stats.kv_cache_usage = 0.5;
  stats.prefix_cache.Record(40, 16, false);
  stats.prefix_cache.Record(70, 32, true);  // of a preempted request: exported nowhere (PC-5)
  metrics.RecordScheduler(stats);
  stats.num_running = 4;
  metrics.RecordScheduler(stats);
  const auto samples = Samples(metrics);
  EXPECT_EQ(samples.at("vllm:num_requests_running"), 4);
  EXPECT_EQ(samples.at("vllm:num_requests_waiting"), 3);
  EXPECT_EQ(samples.at("vllm:num_requests_waiting_by_reason{reason=capacity}"), 2);
  EXPECT_EQ(samples.at("vllm:num_requests_waiting_by_reason{reason=deferred}"), 1);
  EXPECT_EQ(samples.at("vllm:kv_cache_usage_perc"), 0.5);
  EXPECT_EQ(samples.at("vllm:prefix_cache_queries_total"), 80);
  EXPECT_EQ(samples.at("vllm:prefix_cache_hits_total"), 32);
}

TEST(EngineMetricsTest, PositionsOfDraftsAreCountedOnTheirOwn) {
  EngineMetrics metrics({.max_model_len = 100, .num_speculative_tokens = 2});
  const std::vector<std::int64_t> accepted = {3, 1};
  SchedulerStats stats;
  stats.spec_decoding = {.num_drafts = 4,
                         .num_draft_tokens = 8,
                         .num_accepted_tokens = 4,
                         .accepted_per_position = accepted};
  metrics.RecordScheduler(stats);
  metrics.RecordScheduler(SchedulerStats{});  // a step without drafts
  const auto samples = Samples(metrics);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_drafts_total"), 4);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_draft_tokens_total"), 8);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_accepted_tokens_total"), 4);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_accepted_tokens_per_pos_total{position=0}"), 3);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_accepted_tokens_per_pos_total{position=1}"), 1);
}

class IterationTest : public testing::Test {
 protected:
  static IterationStats Iteration() {
    IterationStats stats;
    stats.num_generation_tokens = 5;
    stats.num_preempted_requests = 1;
    stats.prompt_tokens.Add(PrefillStats::Of(30, 16, 4));
    stats.prompt_tokens.Add(PrefillStats::Of(10, 0, 0));
    stats.times_to_first_token = {0.25, 3};
    stats.inter_token_latencies = {0.01, 0.02, 100};
    stats.finished.push_back({.reason = FinishReason::kLength,
                              .e2e_latency = 2,
                              .queued = 0.5,
                              .prefill = 1,
                              .inference = 1.5,
                              .decode = 0.5,
                              .mean_per_output_token = 0.25,
                              .num_prompt_tokens = 30,
                              .num_generation_tokens = 3,
                              .num_cached_tokens = 20,
                              .max_tokens = 3});
    return stats;
  }
};

TEST_F(IterationTest, TokensAreSplitBySource) {
  EngineMetrics metrics({.max_model_len = 100});
  metrics.RecordIteration(Iteration());
  const auto samples = Samples(metrics);
  EXPECT_EQ(samples.at("vllm:prompt_tokens_total"), 40);
  EXPECT_EQ(samples.at("vllm:prompt_tokens_by_source_total{source=local_compute}"), 20);
  EXPECT_EQ(samples.at("vllm:prompt_tokens_by_source_total{source=local_cache_hit}"), 16);
  EXPECT_EQ(samples.at("vllm:prompt_tokens_by_source_total{source=external_kv_transfer}"), 4);
  EXPECT_EQ(samples.at("vllm:prompt_tokens_cached_total"), 20);
  EXPECT_EQ(samples.at("vllm:generation_tokens_total"), 5);
  EXPECT_EQ(samples.at("vllm:num_preemptions_total"), 1);
  EXPECT_EQ(samples.at("vllm:iteration_tokens_total_sum"), 45);
}

TEST_F(IterationTest, HistogramsAreCumulative) {
  EngineMetrics metrics({.max_model_len = 100});
  metrics.RecordIteration(Iteration());
  const auto samples = Samples(metrics);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_bucket{le=0.1}"), 0);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_bucket{le=0.25}"), 1);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_bucket{le=5.0}"), 2);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_sum"), 3.25);
  EXPECT_EQ(samples.at("vllm:inter_token_latency_seconds_bucket{le=80.0}"), 2);
  EXPECT_EQ(samples.at("vllm:inter_token_latency_seconds_bucket{le=+Inf}"), 3);
}

TEST_F(IterationTest, AFinishedRequestIsOneObservationEverywhere) {
  EngineMetrics metrics({.max_model_len = 100});
  metrics.RecordIteration(Iteration());
  const auto samples = Samples(metrics);
  EXPECT_EQ(samples.at("vllm:request_success_total{finished_reason=length}"), 1);
  const std::map<std::string, double> sums = {
      {"request_prompt_tokens", 30},
      {"request_generation_tokens", 3},
      {"request_max_num_generation_tokens", 3},
      {"request_params_n", 1},
      {"request_params_max_tokens", 3},
      {"request_time_per_output_token_seconds", 0.25},
      {"e2e_request_latency_seconds", 2},
      {"request_queue_time_seconds", 0.5},
      {"request_inference_time_seconds", 1.5},
      {"request_prefill_time_seconds", 1},
      {"request_decode_time_seconds", 0.5},
      {"request_prefill_kv_computed_tokens", 10},
  };
  for (const auto& [name, sum] : sums) {
    EXPECT_EQ(samples.at("vllm:" + name + "_count"), 1) << name;
    EXPECT_EQ(samples.at("vllm:" + name + "_sum"), sum) << name;
  }
}

}  // namespace
}  // namespace tally
