// NIXL and host offloading stacked, the combination whose counters broke in public: the edge cases
// of connectors.md 2.B with their exact PrefillStats and counters, and the rules of section 2.
#include "engine/connector/multi_connector.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/connector/connector_config.h"
#include "engine/core/scheduler_harness.h"

namespace tally {
namespace {

constexpr std::int32_t kBlock = 128;

ConnectorConfig Nixl() { return {.type = ConnectorConfig::Type::kNixl}; }
ConnectorConfig Offloading() {
  ConnectorConfig config{.type = ConnectorConfig::Type::kOffloading};
  config.offloading = {.num_cpu_blocks = 1000, .block_size = kBlock};
  return config;
}

EngineConfig Config(std::uint32_t num_blocks) {
  EngineConfig config = SchedulerHarness::SmallConfig(num_blocks);
  config.kv.block_size = kBlock;
  config.max_num_batched_tokens = 2048;
  config.max_model_len = 2048;
  return config;
}

std::unique_ptr<KvConnector> Stacked(std::vector<ConnectorConfig> children) {
  return CreateConnector(
      {.type = ConnectorConfig::Type::kMulti, .offloading = {}, .children = std::move(children)});
}

// What a request told of its prompt, and what it added to the counters.
struct Told {
  std::int32_t local = 0;
  std::int32_t external = 0;
  std::int32_t computed = 0;
  std::int64_t external_queries = 0;
  std::int64_t external_hits = 0;
  std::int32_t scheduled = 0;  // tokens that were in fact computed for its first output

  friend bool operator==(const Told&, const Told&) = default;
  friend void PrintTo(const Told& told, std::ostream* out) {
    *out << "local " << told.local << ", external " << told.external << ", computed "
         << told.computed << ", external queries " << told.external_queries << " and hits "
         << told.external_hits << ", scheduled " << told.scheduled;
  }
};

class StackedEngine {
 public:
  explicit StackedEngine(std::vector<ConnectorConfig> children = {Nixl(), Offloading()},
                         std::uint32_t num_blocks = 60)
      : t_(Config(num_blocks), Stacked(std::move(children))) {}

  // A request that a prefill engine has computed the prompt of.
  Told Decode(const std::vector<TokenId>& prompt) {
    nlohmann::json blocks = nlohmann::json::array();
    for (std::size_t i = 0; i < (prompt.size() + kBlock - 1) / kBlock; ++i) blocks.push_back(i + 1);
    return Run(prompt, {{"do_remote_prefill", true},
                        {"remote_block_ids", {blocks}},
                        {"remote_engine_id", "prefill"},
                        {"remote_request_id", "there"},
                        {"remote_host", "localhost"},
                        {"remote_port", 5600}});
  }
  Told Direct(const std::vector<TokenId>& prompt) { return Run(prompt, nullptr); }

  SchedulerHarness& harness() { return t_; }

 private:
  Told Run(const std::vector<TokenId>& prompt, const nlohmann::json& params) {
    const std::string id = "r" + std::to_string(added_++);
    RequestSpec spec;
    if (!params.is_null()) spec.kv_transfer_params = std::make_shared<nlohmann::json>(params);
    EXPECT_TRUE(t_.Add(id, prompt, 2, spec).ok());
    Told told;
    bool answered = false;
    for (int step = 0; step < 10 && t_.scheduler().Find(id); ++step) {
      const Planned planned = t_.Schedule();
      for (const PlannedRequest& request : planned.requests) {
        if (!answered) told.scheduled += request.tokens;
      }
      TransferReports reports;
      for (const RequestHandle request : t_.scheduler().KnownRequests()) {
        const RequestState& state = t_.scheduler().state(request);
        const std::string name(t_.scheduler().id(request));
        if (state.status == RequestStatus::kWaitingForRemoteKvs)
          reports.finished_recving.push_back(name);
        if (state.awaits_send) reports.finished_sending.push_back(name);
      }
      for (const ClientOutput& output : t_.Update({}, 7, reports)) {
        if (!output.prefill) continue;
        answered = true;
        told.local = output.prefill->num_local_cached_tokens;
        told.external = output.prefill->num_external_cached_tokens;
        told.computed = output.prefill->num_computed_tokens;
      }
      told.external_queries += t_.last_stats().connector_prefix_cache->queries;
      told.external_hits += t_.last_stats().connector_prefix_cache->hits;
    }
    EXPECT_TRUE(answered);
    EXPECT_FALSE(t_.scheduler().Find(id)) << "the request does not end";
    EXPECT_EQ(told.local + told.external + told.computed, static_cast<std::int32_t>(prompt.size()));
    return told;
  }

  SchedulerHarness t_;
  int added_ = 0;
};

std::vector<TokenId> Prompt(std::size_t length, TokenId first = 1000) {
  return SchedulerHarness::Prompt(first, length);
}

TEST(StackedConnectors, Case1APromptShorterThanABlockIsTransferred) {
  EXPECT_EQ(StackedEngine().Decode(Prompt(100)), (Told{0, 100, 0, 100, 100, 1}));
}

TEST(StackedConnectors, Case2OneBlock) {
  EXPECT_EQ(StackedEngine().Decode(Prompt(kBlock)), (Told{0, 128, 0, 128, 128, 1}));
}

TEST(StackedConnectors, Case3JustOverABlock) {
  EXPECT_EQ(StackedEngine().Decode(Prompt(kBlock + 2)), (Told{0, 130, 0, 130, 130, 1}));
}

TEST(StackedConnectors, Case4SeveralBlocks) {
  EXPECT_EQ(StackedEngine().Decode(Prompt(4 * kBlock)), (Told{0, 512, 0, 512, 512, 1}));
}

TEST(StackedConnectors, Case5ColdDecode) {
  EXPECT_EQ(StackedEngine().Decode(Prompt(300)), (Told{0, 300, 0, 300, 300, 1}));
}

TEST(StackedConnectors, Case6TheSamePromptAgain) {
  StackedEngine engine;
  engine.Decode(Prompt(300));
  EXPECT_EQ(engine.Decode(Prompt(300)), (Told{256, 44, 0, 44, 44, 1}));
}

// A local hit never covers the last token: of whole blocks the last one is transferred (2.B1).
TEST(StackedConnectors, Case6TheSamePromptOfWholeBlocksAgain) {
  StackedEngine engine;
  engine.Decode(Prompt(4 * kBlock));
  EXPECT_EQ(engine.Decode(Prompt(4 * kBlock)), (Told{384, 128, 0, 128, 128, 1}));
}

TEST(StackedConnectors, Case7APartOfThePromptIsThere) {
  StackedEngine engine;
  engine.Decode(Prompt(200));
  EXPECT_EQ(engine.Decode(Prompt(300)), (Told{128, 172, 0, 172, 172, 1}));
}

TEST(StackedConnectors, Case8StraightToTheDecodeEngine) {
  EXPECT_EQ(StackedEngine().Direct(Prompt(300)), (Told{0, 0, 300, 300, 0, 300}));
}

TEST(StackedConnectors, Case9HostMemoryRecoversWhatTheCacheLost) {
  StackedEngine engine({Nixl(), Offloading()}, 9);
  engine.Direct(Prompt(300));
  for (TokenId other = 0; other < 4; ++other) engine.Direct(Prompt(300, 100'000 + 1000 * other));
  EXPECT_EQ(engine.Direct(Prompt(300)), (Told{0, 256, 44, 300, 256, 44}));
}

// Whoever is asked first and holds something loads it: what NIXL has beyond it is not combined.
TEST(StackedConnectors, OffloadingFirstLeavesTheRestToBeComputed) {
  StackedEngine engine({Offloading(), Nixl()}, 9);
  engine.Direct(Prompt(300));
  for (TokenId other = 0; other < 4; ++other) engine.Direct(Prompt(300, 100'000 + 1000 * other));
  EXPECT_EQ(engine.Decode(Prompt(300)), (Told{0, 256, 44, 300, 256, 44}));
}

// Both save: the blocks are kept until both are done, which the workers have to know.
TEST(StackedConnectors, TwoSavesAreOneReport) {
  SchedulerHarness t(Config(60), Stacked({Nixl(), Offloading()}));
  RequestSpec spec;
  spec.kv_transfer_params =
      std::make_shared<nlohmann::json>(nlohmann::json{{"do_remote_decode", true}});
  ASSERT_TRUE(t.Add("p", Prompt(300), 1, spec).ok());
  t.Step();
  const auto* connector = dynamic_cast<const MultiConnector*>(t.scheduler().connector());
  ASSERT_NE(connector, nullptr);
  const auto plan = t.scheduler().Schedule(100);
  ASSERT_TRUE(plan.ok());
  const nlohmann::json told = plan->connector->ToJson();
  EXPECT_EQ(told["extra_async_saves"], (nlohmann::json{{"p", 1}}));
  EXPECT_EQ(told["children"][0]["send"], nlohmann::json::array({"p"}));
  EXPECT_EQ(t.scheduler().kv().num_free_blocks(), 56U);
  t.Update({}, 7, {.finished_recving = {}, .finished_sending = {"p"}, .invalid_blocks = {}});
  EXPECT_EQ(t.scheduler().kv().num_free_blocks(), 59U);
  EXPECT_FALSE(t.scheduler().Find("p"));
}

}  // namespace
}  // namespace tally
