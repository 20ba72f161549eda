#include "engine/accounting/front_end_stats.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace tally {
namespace {

using Event = RequestEvent;
constexpr RequestHandle kA{0};
constexpr RequestHandle kB{3};

class FrontEndStatsTest : public testing::Test {
 protected:
  // Hands one output to the front end; the views it needs live as long as the test.
  const IterationStats& Process(RequestHandle request, std::size_t num_tokens, Seconds time,
                                std::vector<Event> events = {},
                                FinishReason reason = FinishReason::kNone,
                                const PrefillStats* prefill = nullptr) {
    events_.push_back(std::move(events));
    RequestOutput output;
    output.request = request;
    output.tokens = std::span(tokens_).first(num_tokens);
    output.events = events_.back();
    output.finish_reason = reason;
    output.prefill_stats = prefill;
    front_end_.Process(std::span(&output, 1), time, time, stats_);
    return stats_;
  }

  const std::vector<TokenId> tokens_ = std::vector<TokenId>(8, 1);
  std::deque<std::vector<Event>> events_;
  FrontEndStats front_end_;
  IterationStats stats_;
  const PrefillStats prefill_ = PrefillStats::Of(20, 8, 4);
};

TEST_F(FrontEndStatsTest, TheFirstOutputBringsPromptTokensAndTimeToFirstToken) {
  front_end_.AddRequest(kA, 20, 5, 1.5);
  Process(kA, 1, 4, {{Event::Kind::kQueued, 2}, {Event::Kind::kScheduled, 3}}, FinishReason::kNone,
          &prefill_);
  EXPECT_EQ(stats_.prompt_tokens.total, 20);
  EXPECT_EQ(stats_.prompt_tokens.computed, 8);
  EXPECT_EQ(stats_.prompt_tokens.cached, 12);
  EXPECT_EQ(stats_.prompt_tokens.local_cache_hit, 8);
  EXPECT_EQ(stats_.prompt_tokens.external_kv_transfer, 4);
  EXPECT_EQ(stats_.times_to_first_token, std::vector<Seconds>{2.5});
  EXPECT_TRUE(stats_.inter_token_latencies.empty());
  EXPECT_EQ(stats_.num_generation_tokens, 1);
}

TEST_F(FrontEndStatsTest, ARecordOnALaterOutputIsIgnored) {
  front_end_.AddRequest(kA, 20, 5, 1);
  Process(kA, 1, 4);
  Process(kA, 1, 5, {}, FinishReason::kNone, &prefill_);
  EXPECT_EQ(stats_.prompt_tokens.total, 0);
}

TEST_F(FrontEndStatsTest, OneLatencyAnOutputHoweverManyTokens) {
  front_end_.AddRequest(kA, 20, 9, 1);
  Process(kA, 1, 4);
  Process(kA, 4, 6.5);
  EXPECT_EQ(stats_.inter_token_latencies, std::vector<Seconds>{2.5});
  EXPECT_EQ(stats_.num_generation_tokens, 4);
  Process(kA, 0, 7);
  EXPECT_EQ(stats_.inter_token_latencies, std::vector<Seconds>{0.5});
  EXPECT_TRUE(stats_.times_to_first_token.empty());
}

// metrics.md EX-2: the pause between preemption and resumption is one long latency, and the
// preemption does not move the time of the first scheduling.
TEST_F(FrontEndStatsTest, APreemptionIsCountedWithTheNextOutput) {
  front_end_.AddRequest(kA, 20, 9, 1);
  Process(kA, 1, 4, {{Event::Kind::kQueued, 1}, {Event::Kind::kScheduled, 2}});
  EXPECT_EQ(stats_.num_preempted_requests, 0);
  Process(kA, 1, 9, {{Event::Kind::kPreempted, 5}, {Event::Kind::kScheduled, 8}},
          FinishReason::kLength);
  EXPECT_EQ(stats_.num_preempted_requests, 1);
  EXPECT_EQ(stats_.inter_token_latencies, std::vector<Seconds>{5});
  ASSERT_EQ(stats_.finished.size(), 1U);
  EXPECT_EQ(stats_.finished[0].queued, 1);
}

TEST_F(FrontEndStatsTest, AFinishedRequestLeavesItsTimes) {
  front_end_.AddRequest(kA, 20, 9, 1);
  Process(kA, 2, 5, {{Event::Kind::kQueued, 1.5}, {Event::Kind::kScheduled, 3}},
          FinishReason::kNone, &prefill_);
  Process(kA, 3, 11, {}, FinishReason::kStop);
  ASSERT_EQ(stats_.finished.size(), 1U);
  const FinishedRequestStats& finished = stats_.finished[0];
  EXPECT_EQ(finished.reason, FinishReason::kStop);
  EXPECT_EQ(finished.e2e_latency, 10);
  EXPECT_EQ(finished.queued, 1.5);
  EXPECT_EQ(finished.prefill, 2);
  EXPECT_EQ(finished.decode, 6);
  EXPECT_EQ(finished.inference, 8);
  EXPECT_EQ(finished.mean_per_output_token, 6.0 / 4);  // five tokens, four gaps (FS-3)
  EXPECT_EQ(finished.num_prompt_tokens, 20);
  EXPECT_EQ(finished.num_generation_tokens, 5);
  EXPECT_EQ(finished.num_cached_tokens, 12);
  EXPECT_EQ(finished.max_tokens, 9);
}

TEST_F(FrontEndStatsTest, OneTokenHasNoMeanTime) {
  front_end_.AddRequest(kA, 20, 1, 1);
  Process(kA, 1, 5, {}, FinishReason::kLength);
  EXPECT_EQ(stats_.finished[0].mean_per_output_token, 0);
}

TEST_F(FrontEndStatsTest, NothingOfAForgottenOrFinishedRequestCounts) {
  front_end_.AddRequest(kA, 20, 9, 1);
  front_end_.AddRequest(kB, 20, 9, 1);
  front_end_.Forget(kA);
  Process(kA, 3, 5, {{Event::Kind::kPreempted, 2}}, FinishReason::kStop, &prefill_);
  EXPECT_EQ(stats_.num_generation_tokens, 0);
  EXPECT_EQ(stats_.num_preempted_requests, 0);
  EXPECT_EQ(stats_.prompt_tokens.total, 0);
  EXPECT_TRUE(stats_.finished.empty());
  Process(kB, 1, 5, {}, FinishReason::kStop);
  Process(kB, 1, 6);
  EXPECT_EQ(stats_.num_generation_tokens, 0);
  front_end_.Forget(RequestHandle{99});  // never seen: nothing happens
}

TEST_F(FrontEndStatsTest, AHandleUsedAgainStartsAfresh) {
  front_end_.AddRequest(kA, 20, 9, 1);
  Process(kA, 2, 5, {{Event::Kind::kScheduled, 3}}, FinishReason::kStop);
  front_end_.AddRequest(kA, 7, 3, 6);
  Process(kA, 1, 9, {{Event::Kind::kQueued, 7}, {Event::Kind::kScheduled, 8}},
          FinishReason::kLength);
  EXPECT_EQ(stats_.times_to_first_token, std::vector<Seconds>{3});
  EXPECT_EQ(stats_.finished[0].num_generation_tokens, 1);
  EXPECT_EQ(stats_.finished[0].num_cached_tokens, 0);
  EXPECT_EQ(stats_.finished[0].queued, 1);
}

// Receptions are wall time, batches are the engine's (PIPE-5).
TEST_F(FrontEndStatsTest, TheTwoClocksAreNeverMixed) {
  front_end_.AddRequest(kA, 20, 9, 1000);
  const std::vector<Event> events = {{Event::Kind::kQueued, 1}, {Event::Kind::kScheduled, 2}};
  RequestOutput output;
  output.request = kA;
  output.tokens = std::span(tokens_).first(1);
  output.events = events;
  output.finish_reason = FinishReason::kStop;
  front_end_.Process(std::span(&output, 1), 5, 1007, stats_);
  EXPECT_EQ(stats_.times_to_first_token, std::vector<Seconds>{7});
  EXPECT_EQ(stats_.finished[0].e2e_latency, 7);
  EXPECT_EQ(stats_.finished[0].inference, 3);
}

}  // namespace
}  // namespace tally
