#include "engine/workload/generated_workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "engine/workload/prefix_bound.h"

namespace tally {
namespace {

std::vector<WorkloadRequest> Generate(const GeneratedWorkloadOptions& options) {
  GeneratedWorkload workload(options);
  std::vector<WorkloadRequest> requests;
  WorkloadRequest request;
  while (*workload.Next(request)) requests.push_back(request);
  EXPECT_EQ(workload.fraction_read(), 1);
  return requests;
}

TEST(GeneratedWorkloadTest, SeedDecidesEverything) {
  const auto a = Generate({.seed = 5, .num_requests = 100});
  const auto b = Generate({.seed = 5, .num_requests = 100});
  const auto c = Generate({.seed = 6, .num_requests = 100});
  ASSERT_EQ(a.size(), 100U);
  int same_as_other_seed = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].segments, b[i].segments);
    EXPECT_EQ(a[i].arrival, b[i].arrival);
    EXPECT_EQ(a[i].num_output_tokens, b[i].num_output_tokens);
    same_as_other_seed += a[i].segments == c[i].segments ? 1 : 0;
  }
  EXPECT_EQ(same_as_other_seed, 0);
}

TEST(GeneratedWorkloadTest, ArrivesInOrderAtTheRate) {
  const auto requests = Generate({.seed = 1, .num_requests = 10'000, .requests_per_second = 2});
  for (std::size_t i = 1; i < requests.size(); ++i) {
    ASSERT_GE(requests[i].arrival, requests[i - 1].arrival);
  }
  EXPECT_EQ(requests.front().arrival, 0);
  // Later turns follow their sessions after minutes, so it takes a while to reach the rate.
  const auto late = std::count_if(requests.begin(), requests.end(),
                                  [](const WorkloadRequest& r) { return r.arrival >= 1'000; });
  const double span = requests.back().arrival - 1'000;
  EXPECT_NEAR(static_cast<double>(late) / span, 2, 0.15);
}

// A turn's prompt is the one before it, the answer to that, and something of the user's.
TEST(GeneratedWorkloadTest, NextTurnContainsThePromptAndItsOutput) {
  const auto requests = Generate({.seed = 2, .num_requests = 1000});
  std::map<std::uint64_t, const WorkloadRequest*> by_output;
  int later_turns = 0;
  for (const WorkloadRequest& request : requests) {
    std::int64_t sum = 0;
    for (const PromptSegment& segment : request.segments) {
      ASSERT_GT(segment.num_tokens, 0);
      sum += segment.num_tokens;
    }
    ASSERT_EQ(sum, request.num_prompt_tokens);
    if (request.segments.size() > 2) {
      ++later_turns;
      const PromptSegment& answer = request.segments[request.segments.size() - 2];
      ASSERT_TRUE(by_output.contains(answer.seed));
      const WorkloadRequest& previous = *by_output[answer.seed];
      EXPECT_EQ(answer.num_tokens, previous.num_output_tokens);
      EXPECT_LT(previous.arrival, request.arrival);
      ASSERT_EQ(previous.segments.size(), request.segments.size() - 2);
      EXPECT_TRUE(
          std::equal(previous.segments.begin(), previous.segments.end(), request.segments.begin()));
    }
    by_output[request.output_seed] = &request;
  }
  EXPECT_GT(later_turns, 200);
}

// The published means and tails of Mooncake's conversation trace.
TEST(GeneratedWorkloadTest, LengthsAreThoseOfTheTrace) {
  const auto requests = Generate({.seed = 3, .num_requests = 12'031, .requests_per_second = 3.4});
  PrefixBound bound;
  std::vector<std::int32_t> prompts, outputs;
  double prompt_sum = 0, output_sum = 0;
  for (const WorkloadRequest& request : requests) {
    bound.Add(request);
    prompts.push_back(request.num_prompt_tokens);
    outputs.push_back(request.num_output_tokens);
    prompt_sum += request.num_prompt_tokens;
    output_sum += request.num_output_tokens;
  }
  std::sort(prompts.begin(), prompts.end());
  std::sort(outputs.begin(), outputs.end());
  const auto quantile = [](const std::vector<std::int32_t>& values, double part) {
    return static_cast<double>(
        values[static_cast<std::size_t>(part * static_cast<double>(values.size()))]);
  };
  EXPECT_NEAR(prompt_sum / 12'031, 12'035, 600);
  EXPECT_NEAR(quantile(prompts, 0.5), 6'909, 700);
  EXPECT_NEAR(quantile(prompts, 0.9), 27'367, 2'500);
  EXPECT_NEAR(quantile(prompts, 0.99), 85'401, 12'000);
  EXPECT_GE(prompts.front(), 891);
  EXPECT_LE(prompts.back(), 126'195);
  EXPECT_NEAR(output_sum / 12'031, 343, 15);
  EXPECT_NEAR(quantile(outputs, 0.5), 350, 25);
  EXPECT_NEAR(quantile(outputs, 0.99), 1'120, 150);
  EXPECT_GE(outputs.front(), 1);
  EXPECT_LE(outputs.back(), 2'000);
  EXPECT_NEAR(bound.fraction(), 0.374, 0.03);
}

}  // namespace
}  // namespace tally
