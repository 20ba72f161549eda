// The worked examples of scheduler.md section 11, which were obtained by running the reference
// engine, and the rules around them.
#include "engine/core/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "engine/core/scheduler_harness.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = RequestEvent::Kind;

std::vector<TokenId> Prompt(TokenId first, std::size_t length) {
  return SchedulerHarness::Prompt(first, length);
}

EngineConfig Small(std::uint32_t num_blocks, Behavior behavior = Behavior::Vllm0_20()) {
  EngineConfig config = SchedulerHarness::SmallConfig(num_blocks);
  config.behavior = behavior;
  return config;
}

TEST(SchedulerTest, Ex1ChunksFillTheBudgetAndRunningRequestsGoFirst) {
  EngineConfig config = Small(20);
  config.kv.block_size = 16;
  config.max_num_batched_tokens = 16;
  config.max_num_seqs = 3;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 10), 4).ok());
  ASSERT_TRUE(t.Add("b", Prompt(200, 10), 4).ok());
  ASSERT_TRUE(t.Add("c", Prompt(300, 3), 4).ok());
  EXPECT_EQ(t.Schedule().Text(), "new a[1]@0 n10; new b[2]@0 n6");
  const std::vector<ClientOutput> first = t.Update();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].id, "a");
  EXPECT_EQ(first[0].prefill, (PrefillStats{10, 10, 0, 0, 0}));
  EXPECT_THAT(first[0].events, ElementsAre(Kind::kQueued, Kind::kScheduled));
  EXPECT_EQ(t.last_stats().num_running, 2);
  EXPECT_EQ(t.last_stats().num_waiting, 1);
  EXPECT_EQ(t.Schedule().Text(), "cached a[-]@10/o1 n1; cached b[-]@6/o0 n4; new c[3]@0 n3");
  const std::vector<ClientOutput> second = t.Update();
  ASSERT_EQ(second.size(), 3U);
  EXPECT_FALSE(second[0].prefill.has_value());  // delivered once
  EXPECT_THAT(second[0].events, IsEmpty());
  EXPECT_THAT(second[1].events, ElementsAre(Kind::kQueued, Kind::kScheduled));
}

TEST(SchedulerTest, Ex2TheLastRunningRequestIsPreemptedAndResumesWithAllItsTokens) {
  EngineConfig config = Small(6);
  config.kv.enable_prefix_caching = false;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 7), 4).ok());
  ASSERT_TRUE(t.Add("b", Prompt(200, 7), 4).ok());
  EXPECT_EQ(t.Step().Text(), "new a[1,2]@0 n7; new b[3,4]@0 n7");
  EXPECT_EQ(t.Step().Text(), "cached a[-]@7/o1 n1; cached b[-]@7/o1 n1");
  Planned third = t.Step();
  EXPECT_EQ(third.Text(), "cached a[5]@8/o2 n1");
  EXPECT_THAT(third.preempted, ElementsAre("b"));
  EXPECT_EQ(t.State("b"), "P 0/9");
  EXPECT_EQ(t.scheduler().kv().num_free_blocks(), 2U);
  EXPECT_EQ(t.Step().Text(), "cached a[-]@9/o3 n1");
  EXPECT_EQ(t.last_outputs()[0].finish, FinishReason::kLength);
  Planned fifth = t.Step();
  EXPECT_EQ(fifth.Text(), "resumed b[4,3,5]@0/o2 n9");
  EXPECT_THAT(fifth.finished, ElementsAre("a"));
  EXPECT_THAT(t.last_outputs()[0].events, ElementsAre(Kind::kPreempted, Kind::kScheduled));
  EXPECT_FALSE(t.last_outputs()[0].prefill.has_value());
  t.Step();
  EXPECT_EQ(t.last_outputs()[0].finish, FinishReason::kLength);
}

TEST(SchedulerTest, Ex3ResumptionHitsTheRequestsOwnBlocks) {
  SchedulerHarness t(Small(6));
  ASSERT_TRUE(t.Add("a", Prompt(100, 7), 4).ok());
  ASSERT_TRUE(t.Add("b", Prompt(200, 7), 4).ok());
  EXPECT_THAT(t.Step().common_prefix, ElementsAre(0));
  for (int i = 0; i < 3; ++i) t.Step();
  const Planned resumed = t.Step();
  EXPECT_EQ(resumed.Text(), "resumed b[3,4,5]@8/o2 n1");
  EXPECT_THAT(resumed.common_prefix, ElementsAre(3));
  EXPECT_EQ(t.last_stats().prefix_cache.preempted_requests, 1);
  EXPECT_EQ(t.last_stats().prefix_cache.preempted_queries, 9);
  EXPECT_EQ(t.last_stats().prefix_cache.preempted_hits, 8);
  EXPECT_EQ(t.last_stats().prefix_cache.requests, 0);
}

TEST(SchedulerTest, Ex4APriorityVictimGivesItsPlaceInTheStepBack) {
  EngineConfig config = Small(7);
  config.policy = SchedulingPolicy::kPriority;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 6), 30, {.priority = 5}).ok());
  t.Step();
  ASSERT_TRUE(t.Add("b", Prompt(200, 8), 30, {.priority = 0}).ok());
  ASSERT_TRUE(t.Add("c", Prompt(300, 7), 30, {.priority = 1}).ok());
  EXPECT_EQ(t.Step().Tokens(), "a:1 b:8 c:7");
  const Planned step = t.Step();
  EXPECT_EQ(step.Text(), "cached b[2]@8/o1 n1; cached c[-]@7/o1 n1");
  EXPECT_THAT(step.preempted, ElementsAre("a"));
  EXPECT_THAT(t.Names(t.scheduler().running()), ElementsAre("b", "c"));
}

TEST(SchedulerTest, Ex5AnAsynchronousStepDeliversToARequestPreemptedMeanwhile) {
  EngineConfig config = Small(6);
  config.async_scheduling = true;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 7), 10).ok());
  ASSERT_TRUE(t.Add("b", Prompt(200, 7), 10).ok());
  EXPECT_EQ(t.Schedule().Tokens(), "a:7 b:7");
  EXPECT_EQ(t.Schedule().Text(), "cached a[-]@7/o1 n1; cached b[-]@7/o1 n1");
  EXPECT_EQ(t.Update().size(), 2U);
  const Planned third = t.Schedule();
  EXPECT_EQ(third.Text(), "cached a[5]@8/o2 n1");
  EXPECT_THAT(third.preempted, ElementsAre("b"));
  const std::vector<ClientOutput> late = t.Update();
  ASSERT_EQ(late.size(), 2U);
  EXPECT_EQ(late[1].id, "b");
  EXPECT_THAT(late[1].events, ElementsAre(Kind::kPreempted));
  EXPECT_EQ(t.State("b"), "P 0/9");
}

TEST(SchedulerTest, Ex6AsynchronousSchedulingStopsAtTheLimitWithoutAnExtraStep) {
  EngineConfig config = Small(20);
  config.async_scheduling = true;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 20), 3).ok());
  EXPECT_EQ(t.Schedule().Tokens(), "a:20");
  EXPECT_EQ(t.Schedule().Text(), "cached a[6]@20/o1 n1");
  t.Update();
  EXPECT_EQ(t.Schedule().Text(), "cached a[-]@21/o2 n1");
  t.Update();
  EXPECT_THAT(t.Schedule().requests, IsEmpty());
  EXPECT_EQ(t.Update()[0].finish, FinishReason::kLength);
  EXPECT_THAT(t.Update(), IsEmpty());
}

TEST(SchedulerTest, Ex6AsynchronousDraftsAreJudgedWhenTheirTokensArrive) {
  EngineConfig config = Small(20);
  config.async_scheduling = true;
  config.num_speculative_tokens = 2;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 10), 30).ok());
  EXPECT_EQ(t.Schedule().Tokens(), "a:10");
  const Planned second = t.Schedule();
  EXPECT_EQ(second.Tokens(), "a:3");
  EXPECT_THAT(second.requests[0].drafts, ElementsAre(kDraftPlaceholder, kDraftPlaceholder));
  t.Update({{"a", {1}}});
  EXPECT_EQ(t.Schedule().Text(), "cached a[-]@13/o4 n3");
  t.Update({{"a", {2, 3}}});
  EXPECT_EQ(t.State("a"), "R 15/13");
  EXPECT_EQ(t.last_stats().spec_decoding.num_drafts, 1);
  EXPECT_EQ(t.last_stats().spec_decoding.num_draft_tokens, 2);
  EXPECT_EQ(t.last_stats().spec_decoding.num_accepted_tokens, 1);
  EXPECT_THAT(t.last_stats().spec_decoding.accepted_per_position, ElementsAre(1, 0));
  const Planned fourth = t.Schedule();
  EXPECT_EQ(fourth.Tokens(), "a:3");
  EXPECT_EQ(fourth.requests[0].computed, 15);
  EXPECT_EQ(fourth.requests[0].outputs, 6);
  t.Update({{"a", {4, 5, 6}}});
  EXPECT_THAT(t.last_stats().spec_decoding.accepted_per_position, ElementsAre(1, 1));
  EXPECT_EQ(t.State("a"), "R 18/16");
}

TEST(SchedulerTest, Ex7RejectedDraftsAreTakenBack) {
  EngineConfig config = Small(20);
  config.num_speculative_tokens = 3;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 10), 30).ok());
  ASSERT_TRUE(t.Add("b", Prompt(200, 10), 30).ok());
  t.Step();
  t.SetDrafts("a", {11, 12, 13});
  t.SetDrafts("b", {21, 22, 23});
  EXPECT_EQ(t.Schedule().Tokens(), "a:4 b:4");
  EXPECT_EQ(t.State("a"), "R 14/11");
  t.Update({{"a", {11, 12, 50}}, {"b", {60}}});
  EXPECT_EQ(t.State("a"), "R 13/14");
  EXPECT_EQ(t.State("b"), "R 11/12");
  EXPECT_EQ(t.last_stats().spec_decoding.num_drafts, 2);
  EXPECT_EQ(t.last_stats().spec_decoding.num_draft_tokens, 6);
  EXPECT_EQ(t.last_stats().spec_decoding.num_accepted_tokens, 2);
  EXPECT_THAT(t.last_stats().spec_decoding.accepted_per_position, ElementsAre(1, 1, 0));
  t.SetDrafts("a", {1, 2, 3});
  EXPECT_EQ(t.Schedule().Tokens(), "a:4 b:1");
}

TEST(SchedulerTest, Ex7DraftsAreCutAtTheModelLength) {
  EngineConfig config = Small(20);
  config.num_speculative_tokens = 3;
  config.max_model_len = 32;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 28), 30).ok());
  t.Step();
  t.SetDrafts("a", {11, 12, 13});
  const Planned step = t.Schedule();
  EXPECT_EQ(step.Tokens(), "a:3");
  EXPECT_THAT(step.requests[0].drafts, ElementsAre(11, 12));
  EXPECT_EQ(t.Update({{"a", {11, 12, 13}}})[0].finish, FinishReason::kLength);
}

TEST(SchedulerTest, Ex14StopsAreTestedInOrderAndEndTheDelivery) {
  EngineConfig config = Small(40);
  config.num_speculative_tokens = 3;
  SchedulerHarness t(config);
  const std::vector<TokenId> nine = {9};
  const std::vector<TokenId> twelve = {12};
  ASSERT_TRUE(t.Add("a", Prompt(100, 10), 30, {.stop_token_ids = nine}).ok());
  ASSERT_TRUE(t.Add("b", Prompt(200, 10), 30, {.eos_token_id = 7}).ok());
  ASSERT_TRUE(t.Add("c", Prompt(300, 10), 2).ok());
  ASSERT_TRUE(
      t.Add("d", Prompt(400, 10), 30, {.min_tokens = 2, .eos_token_id = 7, .stop_token_ids = nine})
          .ok());
  ASSERT_TRUE(t.Add("e", Prompt(500, 10), 30, {.stop_token_ids = twelve}).ok());
  t.Schedule();
  t.Update({{"a", {1}}, {"b", {7}}, {"c", {1}}, {"d", {7}}, {"e", {1}}});
  EXPECT_EQ(t.last_outputs()[1].finish, FinishReason::kStop);
  EXPECT_EQ(t.last_outputs()[1].stop.kind, StopCause::Kind::kNone);
  EXPECT_EQ(t.last_outputs()[3].finish, FinishReason::kNone);
  t.SetDrafts("e", {11, 12, 13});
  t.Schedule();
  t.Update({{"a", {9}}, {"c", {2}}, {"d", {9}}, {"e", {11, 12, 13, 50}}});
  ASSERT_EQ(t.last_outputs().size(), 4U);
  EXPECT_EQ(t.last_outputs()[0].finish, FinishReason::kStop);
  EXPECT_EQ(t.last_outputs()[0].stop.token, 9);
  EXPECT_EQ(t.last_outputs()[1].finish, FinishReason::kLength);
  EXPECT_EQ(t.last_outputs()[2].finish, FinishReason::kStop);
  EXPECT_EQ(t.last_outputs()[2].stop.token, 9);
  EXPECT_THAT(t.last_outputs()[3].tokens, ElementsAre(11, 12));
}

TEST(SchedulerTest, Ex16TheGateWantsRoomForTheWholeSequence) {
  EngineConfig config = Small(6);
  config.max_num_batched_tokens = 8;
  SchedulerHarness reserving(config);
  ASSERT_TRUE(reserving.Add("a", Prompt(100, 24), 4).ok());
  ASSERT_TRUE(reserving.Add("b", Prompt(200, 4), 4).ok());
  EXPECT_THAT(reserving.Step().requests, IsEmpty());
  EXPECT_THAT(reserving.Names(reserving.scheduler().Waiting()), ElementsAre("a", "b"));

  config.scheduler_reserve_full_isl = false;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 24), 4).ok());
  EXPECT_EQ(t.Step().Text(), "new a[1,2]@0 n8");
  EXPECT_EQ(t.Step().Text(), "cached a[3,4]@8/o0 n8");
  const Planned third = t.Step();
  EXPECT_THAT(third.requests, IsEmpty());
  EXPECT_THAT(third.preempted, ElementsAre("a"));
}

TEST(SchedulerTest, WithoutChunkedPrefillAPromptThatDoesNotFitTheBudgetEndsThePass) {
  EngineConfig config = Small(60);
  config.enable_chunked_prefill = false;
  config.max_model_len = 64;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 40), 4).ok());
  ASSERT_TRUE(t.Add("b", Prompt(200, 25), 4).ok());
  ASSERT_TRUE(t.Add("c", Prompt(300, 3), 4).ok());
  EXPECT_EQ(t.Step().Tokens(), "a:40");  // 24 left: b does not fit, c is not looked at
  EXPECT_EQ(t.Step().Tokens(), "a:1 b:25 c:3");
}

TEST(SchedulerTest, LongPrefillsAreCappedAlsoWhenAdmitted) {
  EngineConfig config = Small(60);
  config.long_prefill_token_threshold = 10;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 25), 4).ok());
  ASSERT_TRUE(t.Add("b", Prompt(200, 10), 4).ok());
  EXPECT_EQ(t.Step().Tokens(), "a:10 b:10");
  EXPECT_EQ(t.Step().Tokens(), "a:10 b:1");
  EXPECT_EQ(t.Step().Tokens(), "a:5 b:1");
}

TEST(SchedulerTest, LookUpsOfTheSameStepShareBlocks) {
  SchedulerHarness t(Small(20));
  ASSERT_TRUE(t.Add("a", Prompt(10, 12), 2).ok());
  ASSERT_TRUE(t.Add("b", Prompt(10, 12), 2).ok());
  EXPECT_EQ(t.Step().Text(), "new a[1,2,3]@0 n12; new b[1,2,4]@8 n4");
  EXPECT_EQ(t.last_outputs()[1].prefill, (PrefillStats{12, 4, 8, 8, 0}));
}

TEST(SchedulerTest, SaltsAndUnreadCachesKeepRequestsApart) {
  SchedulerHarness t(Small(40));
  const auto cached = [&](const std::string& id, RequestSpec rest) {
    EXPECT_TRUE(t.Add(id, Prompt(10, 13), 1, rest).ok());
    t.Step();
    return t.last_outputs()[0].prefill->num_cached_tokens;
  };
  EXPECT_EQ(cached("a", {.cache_salt = "s1"}), 0);
  EXPECT_EQ(cached("b", {.cache_salt = "s2"}), 0);
  EXPECT_EQ(cached("c", {}), 0);
  EXPECT_EQ(cached("d", {.cache_salt = "s1"}), 12);
  EXPECT_EQ(cached("e", {.cache_salt = "s1", .skip_reading_prefix_cache = true}), 0);
}

TEST(SchedulerTest, AbortEndsRequestsInTheOrderInWhichTheyWereAdded) {
  SchedulerHarness t(Small(20));
  for (const char* id : {"f", "b", "a", "w"})
    ASSERT_TRUE(t.Add(id, Prompt(id[0] * 100, 9), 9).ok());
  t.Schedule();
  EXPECT_THAT(t.Abort({"a", "unknown", "f", "a"}), ElementsAre("f", "a"));
  EXPECT_EQ(t.Update().size(), 2U);  // the outputs of f and a are nobody's
  EXPECT_THAT(t.Abort({"f"}), IsEmpty());
  EXPECT_THAT(t.Step().finished, ElementsAre("f", "a"));
  EXPECT_THAT(t.Step().finished, IsEmpty());
}

TEST(SchedulerTest, AHandleIsNotReusedWhileAStepRefersToIt) {
  EngineConfig config = Small(20);
  config.async_scheduling = true;
  SchedulerHarness t(config);
  ASSERT_TRUE(t.Add("a", Prompt(100, 5), 9).ok());
  t.Schedule();
  t.Schedule();
  t.Abort({"a"});
  t.Schedule();
  t.Update();
  ASSERT_TRUE(
      t.Add("b", Prompt(200, 5), 9).ok());  // must not get a's place: a step of a's is outstanding
  EXPECT_EQ(t.Schedule().Tokens(), "b:5");
  EXPECT_THAT(t.Update(), IsEmpty());
  EXPECT_EQ(t.State("b"), "R 5/5");
}

TEST(SchedulerTest, ResetWantsAnIdleCacheOrPreemptsAll) {
  SchedulerHarness t(Small(20));
  ASSERT_TRUE(t.Add("a", Prompt(100, 9), 9).ok());
  ASSERT_TRUE(t.Add("b", Prompt(200, 9), 9).ok());
  t.Step();
  EXPECT_FALSE(*t.scheduler().ResetPrefixCache(false, t.now()));
  EXPECT_TRUE(*t.scheduler().ResetPrefixCache(true, t.now()));
  t.scheduler().CheckInvariants();
  EXPECT_THAT(t.Names(t.scheduler().Waiting()), ElementsAre("a", "b"));
  const Planned step = t.Step();
  EXPECT_EQ(step.Tokens(), "a:10 b:10");  // nothing is found
  EXPECT_THAT(step.preempted, IsEmpty());
  EXPECT_TRUE(t.last_stats().prefix_cache.reset);
  EXPECT_THAT(t.last_outputs()[0].events, ElementsAre(Kind::kPreempted, Kind::kScheduled));
}

TEST(SchedulerTest, PauseStatesHoldAdmissionOrEverything) {
  SchedulerHarness t(Small(20));
  ASSERT_TRUE(t.Add("a", Prompt(100, 9), 9).ok());
  t.Step();
  ASSERT_TRUE(t.Add("b", Prompt(200, 9), 9).ok());
  t.scheduler().SetPauseState(PauseState::kPausedNew);
  EXPECT_EQ(t.Step().Tokens(), "a:1");
  EXPECT_EQ(t.scheduler().num_unfinished(), 1U);
  t.scheduler().SetPauseState(PauseState::kPausedAll);
  EXPECT_EQ(t.Step().Tokens(), "");
  EXPECT_EQ(t.scheduler().num_unfinished(), 0U);
  t.scheduler().SetPauseState(PauseState::kUnpaused);
  EXPECT_EQ(t.Step().Tokens(), "a:1 b:9");
}

// ---- Input that is refused ----------------------------------------------------------------------

TEST(SchedulerInputTest, RequestsOutOfRangeNameTheFieldAndChangeNothing) {
  SchedulerHarness t(Small(20, Behavior::Corrected()));
  ASSERT_TRUE(t.Add("known", Prompt(1, 4), 4).ok());
  const auto message = [&](std::string id, std::vector<TokenId> prompt, std::int32_t max_tokens,
                           RequestSpec rest = {}) {
    const std::size_t before = t.scheduler().num_unfinished();
    const absl::Status status = t.Add(std::move(id), std::move(prompt), max_tokens, rest);
    EXPECT_EQ(t.scheduler().num_unfinished(), before + (status.ok() ? 1 : 0));
    return std::string(status.message());
  };
  EXPECT_EQ(message("", {1}, 1), "id: empty, wanted a name");
  EXPECT_EQ(message("known", {1}, 1), "id: known is in use");
  EXPECT_EQ(message("x", {}, 1), "prompt: empty, wanted at least one token");
  EXPECT_EQ(message("x", {1, -5}, 1), "prompt[1]: -5, wanted a token id");
  EXPECT_EQ(message("x", {1}, 0), "max_tokens: 0, wanted 1 to 536870912");
  EXPECT_EQ(message("x", {1}, 3, {.min_tokens = 4}), "min_tokens: 4, wanted 0 to max_tokens 3");
  EXPECT_EQ(message("x", {1}, 3, {.eos_token_id = -2}), "eos: -2, wanted a token id");
  EXPECT_EQ(message("x", {1}, 3, {.arrival_time = std::numeric_limits<double>::infinity()}),
            "arrival: not finite, wanted seconds");
  EXPECT_THAT(message("x", Prompt(1, 257), 3), HasSubstr("can never run, max_model_len is 256"));
  EXPECT_THAT(message("x", Prompt(1, 77), 3), HasSubstr("can never run, the KV cache holds 76"));
  EXPECT_EQ(message("x", Prompt(1, 76), 3), "");
}

TEST(SchedulerInputTest, OutcomesThatDoNotFitTheStepChangeNothing) {
  SchedulerHarness t(Small(20));
  Scheduler& s = t.scheduler();
  const std::array<std::uint32_t, 1> empty = {0};
  EXPECT_FALSE(s.Update({empty, {}}, 1).ok());  // nothing outstanding
  ASSERT_TRUE(t.Add("a", Prompt(100, 9), 9).ok());
  t.Schedule();
  const auto message = [&](std::vector<std::uint32_t> offsets, std::vector<TokenId> tokens) {
    return std::string(s.Update({offsets, tokens}, 1).status().message());
  };
  EXPECT_EQ(message({0}, {}), "sampled_offsets: 1 entries, wanted 2");
  EXPECT_EQ(message({0, 2}, {5}), "sampled_offsets: 0 to 2, wanted 0 to 1");
  EXPECT_EQ(message({0, 2}, {5, 6}), "sampled of a: 2 tokens, wanted at most 1");
  EXPECT_EQ(message({0, 1}, {-1}), "sampled: -1, wanted a token id");
  EXPECT_EQ(t.State("a"), "R 9/9");
  EXPECT_EQ(t.Update().size(), 1U);
}

TEST(SchedulerInputTest, ConfigurationsOutOfRangeAreRefused) {
  const auto message = [](auto change) {
    EngineConfig config = Small(20);
    change(config);
    return std::string(Scheduler::Create(config).status().message());
  };
  using C = EngineConfig;
  EXPECT_EQ(message([](C&) {}), "");
  EXPECT_EQ(message([](C& c) { c.max_num_seqs = 0; }), "max_num_seqs: 0, wanted 1 to 1048576");
  EXPECT_EQ(message([](C& c) { c.max_model_len = -1; }),
            "max_model_len: -1, wanted 1 to 536870912");
  EXPECT_EQ(message([](C& c) { c.max_num_batched_tokens = 4; }),
            "max_num_batched_tokens: 4, wanted at least max_num_seqs 8");
  EXPECT_EQ(
      message([](C& c) { c.enable_chunked_prefill = false; }),
      "max_num_batched_tokens: 64, wanted at least max_model_len 256 without chunked prefill");
}

}  // namespace
}  // namespace tally
