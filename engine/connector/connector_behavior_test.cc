// The fields of Behavior that KV connectors bring, each in both settings: what vLLM 0.20.0 does,
// and what is right. Cases B.. are public bug reports (conformance/cases).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/connector/connector_config.h"
#include "engine/core/scheduler_harness.h"

namespace tally {
namespace {

using testing::ElementsAre;

std::vector<TokenId> Prompt(TokenId first, std::size_t length) {
  return SchedulerHarness::Prompt(first, length);
}

EngineConfig With(std::uint32_t num_blocks, bool Behavior::*field, bool faithful) {
  EngineConfig config = SchedulerHarness::SmallConfig(num_blocks);
  config.behavior = Behavior::Corrected();
  config.behavior.*field = faithful;
  return config;
}

std::unique_ptr<KvConnector> Scripted() { return CreateConnector({}); }

RequestSpec Params(nlohmann::json params) {
  RequestSpec spec;
  spec.kv_transfer_params = std::make_shared<const nlohmann::json>(std::move(params));
  return spec;
}
RequestSpec Held(int tokens, bool async) {
  return Params({{"scripted", {{"held", tokens}, {"async", async}}}});
}

// What a step without samples and with these reports is answered with.
absl::Status Report(Scheduler& scheduler, std::vector<std::string_view> receives,
                    std::vector<std::string_view> sends, std::vector<BlockId> invalid = {}) {
  std::vector<std::uint32_t> offsets(scheduler.oldest_outstanding().size() + 1, 0);
  return scheduler
      .Update({.sampled_offsets = offsets,
               .finished_recving = receives,
               .finished_sending = sends,
               .invalid_blocks = invalid},
              1000)
      .status();
}

TEST(ConnectorBehaviorTest, TrustsConnectorMatches) {
  for (const bool faithful : {true, false}) {
    SchedulerHarness t(With(20, &Behavior::trusts_connector_matches, faithful), Scripted());
    ASSERT_TRUE(t.Add("a", Prompt(10, 8), 2, Held(8, false)).ok());
    const auto plan = t.scheduler().Schedule(5);
    if (faithful) {
      EXPECT_TRUE(absl::IsInternal(plan.status())) << plan.status();
    } else {
      ASSERT_TRUE(plan.ok());
      EXPECT_EQ(plan->requests[0].num_computed_tokens, 7);
      EXPECT_EQ(plan->requests[0].num_tokens, 1);
    }
  }
}

TEST(ConnectorBehaviorTest, OneTokenLoadIsRepeated) {
  for (const bool faithful : {true, false}) {
    SchedulerHarness t(With(20, &Behavior::one_token_load_is_repeated, faithful), Scripted());
    ASSERT_TRUE(
        t.Add("a", {5}, 2, Params({{"scripted", {{"held", 1}, {"async", true}, {"once", false}}}}))
            .ok());
    for (int i = 0; i < 3; ++i) {
      t.Schedule();
      t.Update({}, 0, {.finished_recving = {"a"}, .finished_sending = {}, .invalid_blocks = {}});
    }
    EXPECT_EQ(t.State("a"), faithful ? "W 1/1" : "-");  // or ended by now
  }
}

// vllm #18490.
TEST(ConnectorBehaviorTest, TransferParamsUnchecked) {
  for (const bool faithful : {true, false}) {
    SchedulerHarness t(With(20, &Behavior::transfer_params_unchecked, faithful),
                       CreateConnector({.type = ConnectorConfig::Type::kNixl}));
    ASSERT_TRUE(t.Add("a", Prompt(10, 8), 2, Params({{"do_remote_prefill", true}})).ok());
    const auto plan = t.scheduler().Schedule(5);
    EXPECT_EQ(absl::IsInternal(plan.status()), faithful) << plan.status();
    if (!faithful) {
      EXPECT_EQ(plan->num_scheduled_tokens, 8);
    }
  }
}

TEST(ConnectorBehaviorTest, OneConnectorMayAnswer) {
  for (const bool faithful : {true, false}) {
    const ConnectorConfig multi{
        .type = ConnectorConfig::Type::kMulti, .offloading = {}, .children = {{}, {}}};
    SchedulerHarness t(With(20, &Behavior::one_connector_may_answer, faithful),
                       CreateConnector(multi));
    ASSERT_TRUE(t.Add("a", Prompt(10, 8), 1,
                      Params({{"scripted0", {{"save", true}}}, {"scripted1", {{"save", true}}}}))
                    .ok());
    t.Schedule();
    const std::vector<std::uint32_t> offsets = {0, 1};
    const std::vector<TokenId> tokens = {3};
    const auto result =
        t.scheduler().Update({.sampled_offsets = offsets, .sampled_tokens = tokens}, 5);
    EXPECT_EQ(absl::IsInternal(result.status()), faithful) << result.status();
    if (!faithful) {
      ASSERT_NE(result->outputs[0].kv_transfer_params, nullptr);
      EXPECT_EQ((*result->outputs[0].kv_transfer_params)["saved_blocks"], 2);
    }
  }
}

// B12: vllm #43226, #45628.
TEST(ConnectorBehaviorTest, FirstTransferReportFrees) {
  for (const bool faithful : {true, false}) {
    SchedulerHarness t(With(20, &Behavior::first_transfer_report_frees, faithful), Scripted());
    t.Schedule();
    EXPECT_EQ(absl::IsInternal(Report(t.scheduler(), {}, {"nobody"})), faithful);
  }
}

TEST(ConnectorBehaviorTest, LoadFailuresNeedOneGroup) {
  for (const bool faithful : {true, false}) {
    EngineConfig config = With(30, &Behavior::load_failures_need_one_group, faithful);
    config.kv.groups = {{AttentionKind::kFull, 4, 0}, {AttentionKind::kSlidingWindow, 4, 8}};
    SchedulerHarness t(config, Scripted());
    ASSERT_TRUE(t.Add("a", Prompt(10, 8), 2, Held(4, true)).ok());
    t.Schedule();
    const absl::Status status = Report(t.scheduler(), {}, {}, {BlockId{1}});
    EXPECT_EQ(status.code(),
              faithful ? absl::StatusCode::kInternal : absl::StatusCode::kInvalidArgument)
        << status;
    // A refusal changes nothing: the step can still be updated.
    if (!faithful) {
      EXPECT_TRUE(Report(t.scheduler(), {"a"}, {}).ok());
    }
  }
}

// B19: vllm #49250, #49252.
TEST(ConnectorBehaviorTest, SharedInvalidBlocksRecomputedByOne) {
  for (const bool faithful : {true, false}) {
    EngineConfig config = With(20, &Behavior::shared_invalid_blocks_recomputed_by_one, faithful);
    config.long_prefill_token_threshold = 4;
    SchedulerHarness t(config, Scripted());
    ASSERT_TRUE(t.Add("a", Prompt(10, 12), 4, Held(8, false)).ok());
    ASSERT_TRUE(t.Add("b", Prompt(10, 12), 4, Held(8, false)).ok());
    EXPECT_EQ(t.Schedule().Tokens(), "a:4 b:4");
    t.Update({}, 7, {.finished_recving = {}, .finished_sending = {}, .invalid_blocks = {1, 2}});
    const Planned planned = t.Schedule();
    ASSERT_EQ(planned.requests.size(), 2U);
    EXPECT_EQ(planned.requests[0].computed, 0);
    EXPECT_EQ(planned.requests[1].computed, faithful ? 8 : 0);
  }
}

TEST(ConnectorBehaviorTest, FailedBlocksStayCached) {
  for (const bool faithful : {true, false}) {
    EngineConfig config = With(20, &Behavior::failed_blocks_stay_cached, faithful);
    config.max_num_batched_tokens = 8;
    SchedulerHarness t(config, Scripted());
    ASSERT_TRUE(t.Add("a", Prompt(10, 12), 4, Held(8, false)).ok());
    t.Schedule();
    ASSERT_TRUE(t.Add("c", Prompt(10, 9), 4).ok());
    t.Update({}, 7, {.finished_recving = {}, .finished_sending = {}, .invalid_blocks = {1, 2}});
    const KvCacheManager& kv = t.scheduler().kv();
    EXPECT_EQ(kv.pool().IsCached(BlockId{1}), faithful);
    EXPECT_EQ(kv.pool().IsCached(BlockId{2}), faithful);
  }
}

// B24: vllm #45138. The output of the step that failed was expected, and is not any more.
TEST(ConnectorBehaviorTest, LateOutputsCountAsPresentAfterAFailedLoad) {
  for (const bool faithful : {true, false}) {
    EngineConfig config = With(20, &Behavior::late_outputs_count_as_present, faithful);
    config.async_scheduling = true;
    SchedulerHarness t(config, Scripted());
    ASSERT_TRUE(t.Add("a", Prompt(10, 12), 6, Held(11, false)).ok());
    EXPECT_EQ(t.Schedule().Tokens(), "a:1");
    t.Update({}, 7, {.finished_recving = {}, .finished_sending = {}, .invalid_blocks = {1}});
    EXPECT_EQ(t.Schedule().Tokens(), faithful ? "a:13" : "a:12");
  }
}

// B23: vllm #42043, #38624. A forced reset when nothing is under way loses no token.
TEST(ConnectorBehaviorTest, LateOutputsCountAsPresentAfterAReset) {
  for (const bool faithful : {true, false}) {
    EngineConfig config = With(20, &Behavior::late_outputs_count_as_present, faithful);
    config.async_scheduling = true;
    SchedulerHarness t(config);
    ASSERT_TRUE(t.Add("a", Prompt(10, 6), 6).ok());
    t.Step(1);
    t.Step(2);
    ASSERT_TRUE(t.scheduler().ResetPrefixCache(true, t.now()).ok());
    t.Step(3);
    EXPECT_EQ(t.last_outputs().size(), faithful ? 0U : 1U);
  }
}

// B20: vllm #45388. A request whose load is over runs although the head of the line does not fit.
TEST(ConnectorBehaviorTest, KvHoldersWaitInLine) {
  for (const bool faithful : {true, false}) {
    EngineConfig config = With(8, &Behavior::kv_holders_wait_in_line, faithful);
    config.policy = SchedulingPolicy::kPriority;
    SchedulerHarness t(config, Scripted());
    RequestSpec low = Held(12, true);
    low.priority = 5;
    ASSERT_TRUE(t.Add("a", Prompt(10, 16), 3, low).ok());
    t.Step();
    ASSERT_TRUE(t.Add("w", Prompt(100, 24), 3).ok());
    t.Schedule();
    t.Update({}, 7, {.finished_recving = {"a"}, .finished_sending = {}, .invalid_blocks = {}});
    EXPECT_EQ(t.Schedule().Tokens(), faithful ? "" : "a:4");
  }
}

TEST(ConnectorBehaviorTest, LoadsIgnoreRunningPrefills) {
  for (const bool faithful : {true, false}) {
    EngineConfig config = With(10, &Behavior::loads_ignore_running_prefills, faithful);
    config.max_num_batched_tokens = 8;
    config.long_prefill_token_threshold = 4;
    config.scheduler_reserve_full_isl = false;
    SchedulerHarness t(config, Scripted());
    ASSERT_TRUE(t.Add("long", Prompt(10, 30), 2).ok());  // eight of nine blocks in the end
    t.Step();
    ASSERT_TRUE(t.Add("load", Prompt(100, 16), 2, Held(16, true)).ok());
    t.Step();
    EXPECT_EQ(t.State("load"), faithful ? "W 16/16" : "W 0/16");
  }
}

}  // namespace
}  // namespace tally
