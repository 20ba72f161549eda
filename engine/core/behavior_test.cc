// Each field of Behavior in both settings: what vLLM 0.20.0 does, and what is right. Cases B.. are
// public bug reports.
#include "engine/core/behavior.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/scheduler_harness.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<TokenId> Prompt(TokenId first, std::size_t length) {
  return SchedulerHarness::Prompt(first, length);
}

// Two settings that differ in one field only.
EngineConfig With(std::uint32_t num_blocks, bool Behavior::*field, bool faithful) {
  EngineConfig config = SchedulerHarness::SmallConfig(num_blocks);
  config.behavior = Behavior::Corrected();
  config.behavior.*field = faithful;
  return config;
}

TEST(BehaviorTest, PresetsAreKnownByName) {
  EXPECT_TRUE(BehaviorByName("vllm_0_20")->queues_impossible_requests);
  EXPECT_FALSE(BehaviorByName("corrected")->queues_impossible_requests);
  EXPECT_FALSE(BehaviorByName("vllm").has_value());
}

// B01: vllm #37460, #36755.
TEST(BehaviorTest, PrefillStatsOverwrittenAfterPreemption) {
  const auto prefill_of_b = [](bool faithful) {
    EngineConfig config = With(9, &Behavior::prefill_stats_overwritten_after_preemption, faithful);
    config.max_num_batched_tokens = 8;
    config.scheduler_reserve_full_isl = false;
    SchedulerHarness t(config);
    EXPECT_TRUE(t.Add("a", Prompt(10, 7), 10).ok());
    t.Step();
    EXPECT_TRUE(t.Add("b", Prompt(100, 26), 4).ok());
    for (int i = 0; i < 20; ++i) t.Step();
    std::vector<PrefillStats> all;
    for (const ClientOutput& output : t.outputs().at("b")) {
      if (output.prefill) all.push_back(*output.prefill);
    }
    EXPECT_EQ(all.size(), 1U);
    EXPECT_EQ(t.prompt_queries(), 33);
    EXPECT_EQ(t.prompt_hits(), 0);
    return all.at(0);
  };
  EXPECT_EQ(prefill_of_b(true), (PrefillStats{26, 10, 16, 16, 0}));
  EXPECT_EQ(prefill_of_b(false), (PrefillStats{26, 26, 0, 0, 0}));
}

// scheduler.md BUG-2.
TEST(BehaviorTest, MinTokensHidesLengthLimits) {
  const auto outputs = [](bool faithful) {
    EngineConfig config = With(20, &Behavior::min_tokens_hides_length_limits, faithful);
    config.behavior.length_clamp_cuts_known_tokens = true;
    config.max_model_len = 32;
    SchedulerHarness t(config);
    EXPECT_TRUE(t.Add("a", Prompt(10, 30), 20, {.min_tokens = 10}).ok());
    for (int i = 0; i < 10; ++i) t.Step();
    return t.outputs().at("a");
  };
  EXPECT_EQ(outputs(true).size(), 2U);  // then it spins
  EXPECT_EQ(outputs(true).back().finish, FinishReason::kNone);
  EXPECT_EQ(outputs(false).size(), 2U);
  EXPECT_EQ(outputs(false).back().finish, FinishReason::kLength);
}

// scheduler.md BUG-3: a prompt of exactly max_model_len tokens, two plans before the first update.
TEST(BehaviorTest, NegativeSchedules) {
  EngineConfig config = With(20, &Behavior::negative_schedules, true);
  config.behavior.length_clamp_cuts_known_tokens = true;
  config.async_scheduling = true;
  config.max_model_len = 32;
  SchedulerHarness faithful(config);
  ASSERT_TRUE(faithful.Add("a", Prompt(10, 32), 20).ok());
  faithful.Schedule();
  EXPECT_EQ(faithful.Schedule().Tokens(), "a:-1");
  faithful.Update();
  config.behavior.negative_schedules = false;
  SchedulerHarness right(config);
  ASSERT_TRUE(right.Add("a", Prompt(10, 32), 20).ok());
  right.Schedule();
  EXPECT_THAT(right.Schedule().requests, IsEmpty());
  EXPECT_EQ(right.Update()[0].finish, FinishReason::kLength);
  right.Update();
}

// scheduler.md BUG-19, seen with sampling requests too: the last chunk of a prompt of max_model_len
// tokens.
TEST(BehaviorTest, LengthClampCutsKnownTokens) {
  const auto outputs = [](bool faithful) {
    EngineConfig config = With(20, &Behavior::length_clamp_cuts_known_tokens, faithful);
    config.max_model_len = 32;
    config.max_num_batched_tokens = 16;
    SchedulerHarness t(config);
    EXPECT_TRUE(t.Add("a", Prompt(10, 32), 4).ok());
    for (int i = 0; i < 10; ++i) t.Step();
    return t.outputs();
  };
  EXPECT_THAT(outputs(true), IsEmpty());  // 31 of 32 tokens computed, for ever
  ASSERT_EQ(outputs(false).size(), 1U);
  EXPECT_EQ(outputs(false).at("a").back().finish, FinishReason::kLength);
}

// scheduler.md BUG-7: running = [a (least urgent, in flight), b, c]; b needs a block and takes a's.
TEST(BehaviorTest, UnscheduledVictimSkipsARequest) {
  const auto tokens = [](bool faithful) {
    EngineConfig config = With(7, &Behavior::unscheduled_victim_skips_a_request, faithful);
    config.policy = SchedulingPolicy::kPriority;
    SchedulerHarness t(config);
    EXPECT_TRUE(t.Add("a", Prompt(100, 5), 30, {.priority = 9}).ok());
    t.Schedule();
    EXPECT_TRUE(t.Add("b", Prompt(200, 8), 30, {.priority = 1}).ok());
    EXPECT_TRUE(t.Add("c", Prompt(300, 7), 30, {.priority = 2}).ok());
    EXPECT_EQ(t.Schedule().Tokens(), "b:8 c:7");
    t.Update();
    EXPECT_EQ(t.Schedule().Tokens(), "a:1");
    t.Update();
    // a is in flight, b and c have a token each to go on with; no block is free.
    Planned step = t.Schedule();
    EXPECT_THAT(step.preempted, ElementsAre("a"));
    return step.Tokens();
  };
  EXPECT_EQ(tokens(true), "b:1");
  EXPECT_EQ(tokens(false), "b:1 c:1");
}

// kv_cache.md DEF-3: three drafts reach another block, are refused, and the next step has none.
TEST(BehaviorTest, MambaNeedsGoBelowZero) {
  const auto step_without_drafts = [](bool faithful) {
    EngineConfig config = With(20, &Behavior::mamba_needs_go_below_zero, faithful);
    config.num_speculative_tokens = 3;
    config.kv.groups = {{.kind = AttentionKind::kFull, .block_size = 4},
                        {.kind = AttentionKind::kMamba,
                         .block_size = 4,
                         .mamba_mode = MambaMode::kAlign,
                         .speculative_blocks = 3}};
    SchedulerHarness t(config);
    EXPECT_TRUE(t.Add("a", Prompt(10, 6), 9).ok());
    EXPECT_EQ(t.Step().Tokens(), "a:4");  // cut at a block's end
    EXPECT_EQ(t.Step().Tokens(), "a:2");
    t.SetDrafts("a", {1, 2, 3});
    EXPECT_EQ(t.Schedule().Tokens(), "a:4");
    t.Update({{"a", {9}}});
    return t.scheduler().Schedule(t.now()).status();
  };
  EXPECT_EQ(step_without_drafts(true),
            absl::InternalError("AssertionError: num_required_blocks 5 < len(req_blocks) 6"));
  EXPECT_EQ(step_without_drafts(false), absl::OkStatus());
}

// kv_cache.md GRP-72: the last matched block is computed again for the drafter.
TEST(BehaviorTest, EagleLengthensMambaHits) {
  const auto cached_tokens_of_b = [](bool faithful) {
    EngineConfig config = With(30, &Behavior::eagle_lengthens_mamba_hits, faithful);
    config.num_speculative_tokens = 1;
    config.use_eagle = true;
    config.kv.groups = {
        {.kind = AttentionKind::kFull, .block_size = 4},
        {.kind = AttentionKind::kMamba, .block_size = 4, .mamba_mode = MambaMode::kAll}};
    SchedulerHarness t(config);
    EXPECT_TRUE(t.Add("a", Prompt(10, 13), 1).ok());
    t.Step();
    EXPECT_TRUE(t.Add("b", Prompt(10, 13), 1).ok());
    t.Step();
    return t.outputs().at("b")[0].prefill->num_local_cached_tokens;
  };
  EXPECT_EQ(cached_tokens_of_b(true), 12);
  EXPECT_EQ(cached_tokens_of_b(false), 8);
}

// B08: vllm #43736, #45202.
TEST(BehaviorTest, QueriesCountedPerAttempt) {
  const auto queries_and_hits = [](bool faithful) {
    SchedulerHarness t(With(11, &Behavior::queries_counted_per_attempt, faithful));
    EXPECT_TRUE(t.Add("w", Prompt(10, 9), 1).ok());
    t.Step();
    EXPECT_TRUE(t.Add("h", Prompt(200, 26), 6).ok());
    t.Step();
    std::vector<TokenId> x = Prompt(10, 8);
    for (TokenId token : Prompt(300, 12)) x.push_back(token);
    EXPECT_TRUE(t.Add("x", x, 2).ok());
    for (int i = 0; i < 9; ++i) t.Step();
    return std::pair(t.prompt_queries(), t.prompt_hits());
  };
  EXPECT_EQ(queries_and_hits(true), std::pair(std::int64_t{155}, std::int64_t{48}));
  EXPECT_EQ(queries_and_hits(false), std::pair(std::int64_t{55}, std::int64_t{8}));
}

// scheduler.md BUG-24: running = [a (least urgent), b]; a needs a block and none is free.
TEST(BehaviorTest, SelfPreemptionEndsPriorityPass) {
  const auto tokens = [](bool faithful) {
    EngineConfig config = With(5, &Behavior::self_preemption_ends_priority_pass, faithful);
    config.policy = SchedulingPolicy::kPriority;
    SchedulerHarness t(config);
    EXPECT_TRUE(t.Add("a", Prompt(100, 8), 30, {.priority = 9}).ok());
    t.Schedule();
    EXPECT_TRUE(t.Add("b", Prompt(200, 6), 30, {.priority = 1}).ok());
    EXPECT_EQ(t.Schedule().Tokens(), "b:6");
    t.Update();
    t.Update();
    Planned planned = t.Schedule();
    EXPECT_THAT(planned.preempted, ElementsAre("a"));
    return planned.Tokens();
  };
  EXPECT_EQ(tokens(true), "");
  EXPECT_EQ(tokens(false), "b:1");
}

// scheduler.md BUG-21.
TEST(BehaviorTest, QueuesImpossibleRequests) {
  SchedulerHarness faithful(With(6, &Behavior::queues_impossible_requests, true));
  EXPECT_TRUE(faithful.Add("big", Prompt(10, 24), 4).ok());
  EXPECT_TRUE(faithful.Add("small", Prompt(100, 4), 4).ok());
  for (int i = 0; i < 5; ++i) EXPECT_THAT(faithful.Step().requests, IsEmpty());

  SchedulerHarness right(With(6, &Behavior::queues_impossible_requests, false));
  EXPECT_EQ(right.Add("big", Prompt(10, 24), 4).code(), absl::StatusCode::kOutOfRange);
  // One that outgrows the pool ends by length instead of preempting itself for ever.
  EXPECT_TRUE(right.Add("grows", Prompt(100, 17), 100).ok());
  for (int i = 0; i < 10; ++i) right.Step();
  EXPECT_EQ(right.outputs().at("grows").back().finish, FinishReason::kLength);
  EXPECT_EQ(right.outputs().at("grows").size(), 3U);
}

RequestSpec Session(std::vector<TokenId> stops = {}) {
  static std::vector<TokenId> kept;  // a spec holds views
  kept = std::move(stops);
  RequestSpec spec;
  spec.resumable = true;
  spec.stop_token_ids = kept;
  return spec;
}

// scheduler.md BUG-11.
TEST(BehaviorTest, SessionKeepsMaxTokens) {
  for (const bool faithful : {true, false}) {
    SchedulerHarness t(With(20, &Behavior::session_keeps_max_tokens, faithful));
    ASSERT_TRUE(t.Add("s", Prompt(10, 4), 3, Session()).ok());
    for (int i = 0; i < 3; ++i) t.Step(7);
    ASSERT_TRUE(t.Add("s", Prompt(30, 2), 5, Session()).ok());
    for (int i = 0; i < 3; ++i) t.Step(7);
    EXPECT_EQ(t.last_outputs().at(0).finish,
              faithful ? FinishReason::kLength : FinishReason::kNone);
  }
}

// scheduler.md BUG-12: block 2 was hashed over a token that the next chunk replaced.
TEST(BehaviorTest, SessionKeepsStaleHashes) {
  for (const bool faithful : {true, false}) {
    SchedulerHarness t(With(20, &Behavior::session_keeps_stale_hashes, faithful));
    ASSERT_TRUE(t.Add("s", Prompt(1, 6), 2, Session()).ok());
    t.Step(100);
    t.Step(101);
    ASSERT_TRUE(t.Add("s", {7, 8, 9}, 2, Session()).ok());
    t.Step(50);
    ASSERT_TRUE(t.Add("b", {1, 2, 3, 4, 5, 6, 100, 101, 55}, 2).ok());
    const Planned planned = t.Schedule();
    EXPECT_EQ(planned.requests.back().id, "b");
    EXPECT_EQ(planned.requests.back().computed, faithful ? 8 : 4);
  }
}

// scheduler.md BUG-13.
TEST(BehaviorTest, SessionKeepsStopCause) {
  for (const bool faithful : {true, false}) {
    SchedulerHarness t(With(20, &Behavior::session_keeps_stop_cause, faithful));
    ASSERT_TRUE(t.Add("s", Prompt(10, 4), 9, Session({9})).ok());
    t.Step(9);
    EXPECT_EQ(t.last_outputs().at(0).stop.token, 9);
    ASSERT_TRUE(t.Add("s", Prompt(30, 2), 9, Session({9})).ok());
    t.Step(7);
    EXPECT_EQ(t.last_outputs().at(0).stop.kind,
              faithful ? StopCause::Kind::kToken : StopCause::Kind::kNone);
  }
}

// scheduler.md BUG-22.
TEST(BehaviorTest, ChunksAfterTheEndAreLost) {
  for (const bool faithful : {true, false}) {
    SchedulerHarness t(With(20, &Behavior::chunks_after_the_end_are_lost, faithful));
    ASSERT_TRUE(t.Add("s", Prompt(10, 4), 9, Session()).ok());
    t.Step(7);
    ASSERT_TRUE(t.Add("s", {}, 1).ok());  // the end, when the chunk has stopped
    EXPECT_EQ(t.Add("s", Prompt(30, 2), 9, Session()).ok(), faithful);
  }
}

// scheduler.md BUG-6: preempted by a reset, stopped by its late output, with the next chunk
// waiting.
TEST(BehaviorTest, PreemptedSessionIsLost) {
  for (const bool faithful : {true, false}) {
    EngineConfig config = With(20, &Behavior::preempted_session_is_lost, faithful);
    config.behavior.late_outputs_count_as_present = true;
    SchedulerHarness t(config);
    ASSERT_TRUE(t.Add("s", Prompt(10, 4), 2, Session()).ok());
    ASSERT_TRUE(t.Add("s", Prompt(30, 2), 2, Session()).ok());
    t.Step(7);
    t.Schedule();
    ASSERT_TRUE(t.scheduler().ResetPrefixCache(true, t.now()).ok());
    const std::vector<std::uint32_t> offsets = {0, 1};
    const std::vector<TokenId> tokens = {8};
    ASSERT_TRUE(
        t.scheduler().Update({.sampled_offsets = offsets, .sampled_tokens = tokens}, 99).ok());
    EXPECT_EQ(t.scheduler().num_unfinished(), faithful ? 0U : 1U);
  }
}

// scheduler.md BUG-8: `a` is in flight with nothing to schedule while `b` is admitted.
TEST(BehaviorTest, LoraLimitCountsScheduledOnly) {
  for (const bool faithful : {true, false}) {
    EngineConfig config = With(20, &Behavior::lora_limit_counts_scheduled_only, faithful);
    config.max_loras = 1;
    SchedulerHarness t(config);
    RequestSpec spec;
    spec.lora_id = 1;
    ASSERT_TRUE(t.Add("a", Prompt(10, 4), 3, spec).ok());
    t.Schedule();
    spec.lora_id = 2;
    ASSERT_TRUE(t.Add("b", Prompt(30, 4), 3, spec).ok());
    EXPECT_EQ(t.Schedule().Tokens(), faithful ? "b:4" : "");
  }
}

// scheduler.md BUG-17.
TEST(BehaviorTest, EncoderDecoderCacheInflates) {
  for (const bool faithful : {true, false}) {
    EncoderDecoderCache cache(10, faithful);
    cache.Allocate("image", 6, RequestHandle{0});
    EXPECT_FALSE(cache.MakeRoom(5, 0));
    cache.Release("image", 6, RequestHandle{0});
    cache.Release("image", 6, RequestHandle{0});
    EXPECT_TRUE(cache.MakeRoom(10, 0));
    EXPECT_EQ(cache.MakeRoom(11, 0), faithful);
  }
}

}  // namespace
}  // namespace tally
