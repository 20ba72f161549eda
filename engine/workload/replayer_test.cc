#include "engine/workload/replayer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "engine/workload/generated_workload.h"
#include "engine/workload/row_format.h"
#include "engine/workload/test_files.h"
#include "engine/workload/token_expansion.h"
#include "engine/workload/workload_file.h"

namespace tally {
namespace {

// Requests from a list.
class ListSource : public WorkloadSource {
 public:
  explicit ListSource(std::vector<WorkloadRequest> requests, bool has_arrivals = true)
      : requests_(requests.begin(), requests.end()), has_arrivals_(has_arrivals) {
    std::int64_t row = 0;
    for (WorkloadRequest& request : requests_) {
      request.row = ++row;
      request.output_seed = StreamSeed(StreamKind::kOutput, static_cast<std::uint64_t>(row), 0);
      if (request.segments.empty()) SetOwnPrompt(request);
    }
  }
  std::string_view format() const override { return "list"; }
  bool has_arrivals() const override { return has_arrivals_; }
  bool has_prefixes() const override { return true; }
  absl::StatusOr<bool> Next(WorkloadRequest& request) override {
    if (requests_.empty()) return false;
    request = std::move(requests_.front());
    requests_.pop_front();
    return true;
  }
  double fraction_read() const override { return requests_.empty() ? 1 : 0; }

 private:
  std::deque<WorkloadRequest> requests_;
  const bool has_arrivals_;
};

WorkloadRequest Of(Seconds arrival, std::int32_t prompt, std::int32_t output) {
  WorkloadRequest request;
  request.arrival = arrival;
  request.num_prompt_tokens = prompt;
  request.num_output_tokens = output;
  return request;
}

// A small engine on which every step takes a second.
ReplayConfig Config(std::int32_t num_blocks, bool asynchronous = false) {
  ReplaySettings settings;
  settings.num_blocks = num_blocks;
  settings.block_size = 4;
  settings.max_num_seqs = 4;
  settings.max_num_batched_tokens = 32;
  settings.max_model_len = 200;
  settings.async_scheduling = asynchronous;
  settings.linear = LinearParameters{.fixed = 1};
  return *ResolveReplayConfig(settings);
}

ReplayReport MustReplay(const ReplayConfig& config, WorkloadSource& source,
                        const ReplayOptions& options = {}) {
  absl::StatusOr<ReplayReport> report = Replay(config, source, options);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->accounted());
  EXPECT_EQ(report->num_unfinished(), 0);
  // Every token that was scheduled is the first computation of a prompt's, a repetition, or the
  // computation of an output's; the last output of a request is never computed.
  EXPECT_EQ(report->num_scheduled_tokens, report->num_computed_tokens +
                                              report->num_recomputed_tokens +
                                              report->num_output_tokens - report->num_done);
  return *std::move(report);
}

TEST(ReplayerTest, LatenciesOfOneRequest) {
  for (const bool asynchronous : {false, true}) {
    ListSource source({Of(10, 40, 3)});
    std::size_t most_outstanding = 0;
    ReplayOptions options;
    options.on_plan = [&](const Scheduler& scheduler, const StepPlan&) {
      most_outstanding = std::max(most_outstanding, scheduler.num_outstanding_steps());
    };
    const ReplayReport report = MustReplay(Config(100, asynchronous), source, options);
    EXPECT_EQ(most_outstanding, asynchronous ? 2U : 1U);
    EXPECT_EQ(report.num_done, 1);
    // Two steps of prefill (32 and 8 tokens), two of decode; before 10 s nothing happens.
    EXPECT_EQ(report.num_steps, 4);
    EXPECT_EQ(report.virtual_time, 14);
    EXPECT_EQ(report.ttft.count(), 1);
    EXPECT_EQ(report.ttft.max(), 2);
    EXPECT_EQ(report.inter_token.count(), 2);
    EXPECT_EQ(report.inter_token.max(), 1);
    EXPECT_EQ(report.end_to_end.max(), 4);
    EXPECT_EQ(report.num_output_tokens, 3);
    EXPECT_EQ(report.num_computed_tokens, 40);
    EXPECT_EQ(report.num_scheduled_tokens, 42);
  }
}

TEST(ReplayerTest, SharedPrefixIsAHit) {
  WorkloadRequest a = Of(0, 16, 1), b = Of(5, 16, 1);
  a.segments = {{7, 8}, {8, 8}};
  b.segments = {{7, 8}, {9, 8}};
  a.num_shared_segments = b.num_shared_segments = 2;
  ListSource source({a, b});
  const ReplayReport report = MustReplay(Config(100), source);
  EXPECT_EQ(report.num_prompt_tokens, 32);
  EXPECT_EQ(report.num_local_cached_tokens, 8);
  EXPECT_EQ(report.num_computed_tokens, 24);
  EXPECT_EQ(report.hit_rate(), 0.25);
  EXPECT_EQ(report.hit_rate_bound, 0.25);
  EXPECT_EQ(report.prefix_cache.queries, 32);
  EXPECT_EQ(report.prefix_cache.hits, 8);
}

// What the engine samples is what the next turn of a conversation contains.
TEST(ReplayerTest, NextTurnHitsTheOutputOfTheOneBefore) {
  for (const bool asynchronous : {false, true}) {
    WorkloadRequest first = Of(0, 8, 9), second = Of(50, 21, 1);
    const std::uint64_t output = StreamSeed(StreamKind::kOutput, 1, 0);  // of row 1
    first.segments = {{7, 8}};
    second.segments = {{7, 8}, {output, 9}, {8, 4}};
    ListSource source({first, second});
    const ReplayReport report = MustReplay(Config(100, asynchronous), source);
    // 8 tokens of the prompt and 8 of the output have KV; the ninth was never computed.
    EXPECT_EQ(report.num_local_cached_tokens, 16);
  }
}

TEST(ReplayerTest, PreemptionRecomputesWhatWasComputed) {
  // Two sequences of 24 tokens in a pool of 9 blocks of 4: only one of them can grow to its end.
  ListSource source({Of(0, 12, 12), Of(0, 12, 12)});
  ReplayConfig config = Config(10);
  config.engine.kv.enable_prefix_caching = false;
  const ReplayReport report = MustReplay(config, source);
  EXPECT_EQ(report.num_done, 2);
  EXPECT_EQ(report.num_preemptions, 1);
  // Both hold 4 blocks and 16 tokens; the ninth goes to the first, so the second gives its up and
  // computes its 16 tokens again.
  EXPECT_EQ(report.num_recomputed_tokens, 16);
  EXPECT_DOUBLE_EQ(report.peak_kv_usage, 8.0 / 9);
  EXPECT_EQ(report.peak_running, 2);
}

TEST(ReplayerTest, RecomputationInChunksCountsInFull) {
  // Prompts longer than a step's 32 tokens; 23 blocks hold 44 tokens of both, and 12 blocks of one.
  ListSource source({Of(0, 40, 12), Of(0, 40, 12)});
  ReplayConfig config = Config(24);
  config.engine.kv.enable_prefix_caching = false;
  const ReplayReport report = MustReplay(config, source);
  EXPECT_EQ(report.num_preemptions, 1);
  EXPECT_EQ(report.num_recomputed_tokens, 44);
}

// A request that is preempted before its first output finds blocks of its own when it comes back
// (vllm #37460). They are no cache hits; vLLM 0.20.0 counts them as such, and its hit rate can
// exceed that of an infinite cache.
TEST(ReplayerTest, OwnBlocksAreHitsInTheReferenceOnly) {
  for (const bool reference : {false, true}) {
    ReplaySettings settings;
    settings.num_blocks = 9;
    settings.block_size = 4;
    settings.max_num_seqs = 4;
    settings.max_num_batched_tokens = 8;
    settings.max_model_len = 200;
    settings.async_scheduling = false;
    settings.scheduler_reserve_full_isl = false;
    settings.behavior = reference ? "vllm_0_20" : "corrected";
    settings.linear = LinearParameters{.fixed = 1};
    ListSource source({Of(0, 7, 10), Of(1, 26, 4)});
    const absl::StatusOr<ReplayReport> report = Replay(*ResolveReplayConfig(settings), source, {});
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_TRUE(report->accounted());
    EXPECT_EQ(report->num_preemptions, 2);
    EXPECT_EQ(report->num_prompt_tokens, 33);
    EXPECT_EQ(report->num_local_cached_tokens, reference ? 16 : 0);
    EXPECT_EQ(report->num_computed_tokens, reference ? 17 : 33);
    EXPECT_EQ(report->hit_rate_bound, 0);
  }
}

// Four conversations in turn on a cache that holds two of them: what one evicted is in the store.
TEST(ReplayerTest, AConnectorFindsWhatTheCacheLost) {
  const auto replay = [](std::optional<std::string> kind) {
    ReplaySettings settings;
    settings.num_blocks = 60;
    settings.block_size = 4;
    settings.max_num_seqs = 4;
    settings.max_num_batched_tokens = 200;
    settings.max_model_len = 200;
    settings.linear = LinearParameters{.fixed = 1};
    settings.connector = std::move(kind);
    std::vector<WorkloadRequest> requests;
    for (int i = 0; i < 12; ++i) {
      requests.push_back(Of(100.0 * i, 101, 2));
      requests.back().segments = {{static_cast<std::uint64_t>(i % 4), 101}};
    }
    ListSource source(std::move(requests));
    return MustReplay(*ResolveReplayConfig(settings), source);
  };
  EXPECT_EQ(replay(std::nullopt).num_local_cached_tokens, 0);
  for (const std::string kind : {"offload", "store"}) {
    const ReplayReport report = replay(kind);
    EXPECT_EQ(report.num_done, 12);
    EXPECT_EQ(report.num_external_cached_tokens, 8 * 100) << kind;
    EXPECT_GT(report.loaded_bytes, 0);
    EXPECT_GT(report.stored_bytes, report.loaded_bytes / 3);
  }
}

TEST(ReplayerTest, ImpossibleRequestsAreRejectedWithAReason) {
  for (const Behavior& behavior : {Behavior::Corrected(), Behavior::Vllm0_20()}) {
    ListSource source({Of(0, 150, 51), Of(0, 10, 3), Of(0, 30, 12), Of(0, 30, 10)});
    ReplayConfig config = Config(11);  // 40 tokens
    config.engine.behavior = behavior;
    const ReplayReport report = MustReplay(config, source);
    EXPECT_EQ(report.num_read, 4);
    EXPECT_EQ(report.num_done, 2);
    EXPECT_EQ(report.num_rejected, 2);
    EXPECT_EQ(report.rejected_by_reason.at("longer than max_model_len"), 1);
    EXPECT_EQ(report.rejected_by_reason.at("longer than the whole KV cache"), 1);
    ASSERT_EQ(report.rejected_examples.size(), 2U);
    EXPECT_EQ(report.rejected_examples[0],
              "row 1: 150 prompt and 51 output tokens, longer than max_model_len");
    EXPECT_EQ(report.num_output_tokens, 13);
  }
}

TEST(ReplayerTest, NoRequests) {
  ListSource source({});
  const ReplayReport report = MustReplay(Config(10), source);
  EXPECT_EQ(report.num_read, 0);
  EXPECT_EQ(report.num_steps, 0);
  EXPECT_EQ(report.hit_rate(), 0);
}

TEST(ReplayerTest, ClosedLoopKeepsTheSystemFull) {
  std::vector<WorkloadRequest> requests(20, Of(0, 8, 5));
  ListSource source(requests, /*has_arrivals=*/false);
  ReplayOptions options;
  options.concurrency = 3;
  std::size_t most = 0;
  options.on_plan = [&](const Scheduler& scheduler, const StepPlan&) {
    most = std::max(most, scheduler.num_waiting() + scheduler.running().size());
  };
  const ReplayReport report = MustReplay(Config(100), source, options);
  EXPECT_EQ(report.num_done, 20);
  EXPECT_EQ(most, 3U);
  EXPECT_EQ(report.ttft.max(), 1) << "a request of a closed loop arrives when there is room";
  EXPECT_EQ(report.num_steps, 35) << "seven rounds of five steps";
  EXPECT_EQ(report.arrivals, "closed loop of 3 requests");
}

TEST(ReplayerTest, PoissonArrivalsComeAtTheirRate) {
  std::vector<WorkloadRequest> requests(2'000, Of(0, 4, 1));
  ListSource source(requests, /*has_arrivals=*/false);
  ReplayOptions options;
  options.requests_per_second = 0.1;
  options.seed = 4;
  const ReplayReport report = MustReplay(Config(100), source, options);
  EXPECT_NEAR(report.virtual_time, 20'000, 1'500);
}

TEST(ReplayerTest, LimitEndsTheReading) {
  ListSource source(std::vector<WorkloadRequest>(10, Of(0, 8, 2)));
  ReplayOptions options;
  options.limit = 4;
  EXPECT_EQ(MustReplay(Config(100), source, options).num_read, 4);
}

TEST(ReplayerTest, InterruptedRunReportsWhatItHas) {
  std::atomic<bool> interrupted{false};
  GeneratedWorkload source({.seed = 1, .num_requests = 500});
  ReplayOptions options;
  options.interrupted = &interrupted;
  int plans = 0;
  options.on_plan = [&](const Scheduler&, const StepPlan&) {
    if (++plans == 2'000) interrupted = true;
  };
  const absl::StatusOr<ReplayConfig> config = ResolveReplayConfig({});
  const absl::StatusOr<ReplayReport> report = Replay(*config, source, options);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->interrupted);
  EXPECT_TRUE(report->accounted());
  EXPECT_GT(report->num_done, 0);
  EXPECT_GT(report->num_unfinished(), 0);
  EXPECT_EQ(plans, 2'000);
}

TEST(ReplayerTest, BrokenRowEndsTheRun) {
  const std::string path =
      WriteTestFile("a",
                    R"({"timestamp": 0, "input_length": 100, "output_length": 5, "hash_ids": [1]}
{"timestamp": 9, "input_length": 100, "output_length": 5, "hash_ids": 1})");
  absl::StatusOr<std::unique_ptr<WorkloadFile>> file = WorkloadFile::Open(path, {});
  ASSERT_TRUE(file.ok());
  const absl::StatusOr<ReplayReport> report = Replay(Config(100), **file, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().message(), path + ":2:71: hash_ids: 1, wanted an array of hash ids");
}

// Everything that a plan decides, told by request ids.
struct Decision {
  std::string id;
  std::int32_t num_tokens;
  std::int32_t num_computed_tokens;
  std::vector<BlockId> blocks;

  friend bool operator==(const Decision&, const Decision&) = default;
};

std::vector<Decision> DecisionsOf(const ReplayConfig& config, const ReplayOptions& given,
                                  std::size_t& most_in_scheduler) {
  GeneratedWorkload source({.seed = 7, .num_requests = 400, .requests_per_second = 20});
  ReplayOptions options = given;
  std::vector<Decision> decisions;
  most_in_scheduler = 0;
  options.on_plan = [&](const Scheduler& scheduler, const StepPlan& plan) {
    most_in_scheduler = std::max(most_in_scheduler, scheduler.num_waiting());
    for (const ScheduledRequest& entry : plan.requests) {
      const std::span<const BlockId> table = scheduler.kv().Table(entry.request, 0);
      decisions.push_back({std::string(scheduler.id(entry.request)),
                           entry.num_tokens,
                           entry.num_computed_tokens,
                           {table.begin(), table.end()}});
    }
    for (const RequestHandle request : plan.preempted) {
      decisions.push_back({std::string(scheduler.id(request)), -1, -1, {}});
    }
  };
  const ReplayReport report = MustReplay(config, source, options);
  EXPECT_GT(report.num_preemptions, 0);
  EXPECT_GT(report.num_local_cached_tokens, 0);
  return decisions;
}

// The queue behind the first max_num_seqs requests is invisible to first come, first served.
TEST(ReplayerTest, HoldingRequestsBackChangesNoDecision) {
  for (const bool asynchronous : {false, true}) {
    ReplaySettings settings;
    settings.num_blocks = 10'000;
    settings.max_num_seqs = 16;
    settings.async_scheduling = asynchronous;
    const absl::StatusOr<ReplayConfig> config = ResolveReplayConfig(settings);
    ASSERT_TRUE(config.ok());
    std::size_t most_held_back = 0, most_given = 0;
    const std::vector<Decision> held_back = DecisionsOf(*config, {}, most_held_back);
    ReplayOptions everything;
    everything.waiting_window = 1'000'000;
    const std::vector<Decision> given = DecisionsOf(*config, everything, most_given);
    EXPECT_LE(most_held_back, 32U) << "the window, and what preemption adds";
    EXPECT_GT(most_given, 100U);
    ASSERT_EQ(held_back.size(), given.size());
    EXPECT_TRUE(held_back == given);
  }
}

TEST(ReplayerTest, PriorityPolicySeesEveryRequest) {
  // One request runs at a time; the last to arrive is the most urgent.
  std::vector<WorkloadRequest> requests;
  for (int i = 0; i < 40; ++i) {
    requests.push_back(Of(0, 8, 2));
    requests.back().priority = 40 - i;
  }
  ListSource source(requests);
  ReplayConfig config = Config(100);
  config.engine.max_num_seqs = 1;
  config.engine.policy = SchedulingPolicy::kPriority;
  std::vector<std::string> order;
  ReplayOptions options;
  options.on_plan = [&](const Scheduler& scheduler, const StepPlan& plan) {
    for (const ScheduledRequest& entry : plan.requests) {
      if (entry.num_computed_tokens == 0) order.emplace_back(scheduler.id(entry.request));
    }
  };
  MustReplay(config, source, options);
  ASSERT_EQ(order.size(), 40U);
  EXPECT_EQ(order.front(), "40");
  EXPECT_EQ(order.back(), "1");
}

TEST(ReplayerTest, SameInputsGiveTheSameReport) {
  const auto run = [] {
    GeneratedWorkload source({.seed = 3, .num_requests = 200});
    ReplayReport report = MustReplay(*ResolveReplayConfig({}), source);
    report.wall_time = report.schedule_time = report.update_time = report.add_time = 0;
    return ReplayReportJson(report, *ResolveReplayConfig({})).dump();
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace tally
