// That the driver sees what it is there to see.
#include "engine/connector/connector_test_driver.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/connector/scripted_connector.h"
#include "kernels/device/host_device.h"
#include "kernels/device/virtual_device.h"

namespace tally {
namespace {

EngineConfig SmallConfig() {
  EngineConfig config;
  config.kv.block_size = 4;
  config.kv.num_blocks = 20;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 16;
  config.max_model_len = 64;
  return config;
}

std::vector<TokenId> Prompt(std::size_t length) {
  std::vector<TokenId> prompt(length);
  std::iota(prompt.begin(), prompt.end(), 1);
  return prompt;
}

// Reports loads as done and never moves a byte.
class IdleWorker final : public KvConnectorWorker {
 public:
  absl::Status RegisterKvCaches(Device&, KvArena&, DeviceStream&) override {
    return absl::OkStatus();
  }
  void StartLoadKv(const ConnectorMetadata& metadata) override {
    for (const auto& load : dynamic_cast<const ScriptedMetadata&>(metadata).loads)
      loads_.push_back(load.request_id);
  }
  FinishedTransfers GetFinished(std::span<const std::string>) override {
    FinishedTransfers done;
    done.finished_recving.swap(loads_);
    if (reports_strangers) done.finished_sending.push_back("nobody");
    return done;
  }
  void Shutdown() override {}

  bool reports_strangers = false;

 private:
  std::vector<std::string> loads_;
};

TEST(ConnectorTestDriverTest, WithoutConnectorAllIsRight) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    VirtualDevice device({.seed = seed});
    ConnectorTestDriver driver(SmallConfig(), nullptr, nullptr, device);
    ASSERT_TRUE(driver.Add("a", Prompt(30), 8).ok());
    ASSERT_TRUE(driver.Add("b", Prompt(23), 20).ok());
    ASSERT_TRUE(driver.Add("c", Prompt(30), 20).ok());
    ASSERT_TRUE(driver.Drain());
    EXPECT_TRUE(driver.PoolIsWhole());
    EXPECT_EQ(driver.violations(), std::vector<std::string>());
    EXPECT_EQ(driver.client("a").tokens.size(), 8U);
    EXPECT_EQ(driver.client("a").finish, FinishReason::kLength);
  }
}

TEST(ConnectorTestDriverTest, ALoadThatMovesNothingIsSeen) {
  HostDevice device;
  ConnectorTestDriver driver(SmallConfig(), std::make_unique<ScriptedConnector>(),
                             std::make_unique<IdleWorker>(), device);
  ASSERT_TRUE(driver
                  .Add("a", Prompt(30), 2,
                       std::make_shared<const nlohmann::json>(
                           nlohmann::json{{"scripted", {{"held", 16}, {"async", true}}}}))
                  .ok());
  ASSERT_TRUE(driver.Drain());
  const std::vector<std::string> violations = driver.violations();
  ASSERT_FALSE(violations.empty());
  EXPECT_EQ(violations[0], "a reads wrong KV of its token 0, computed 16 to 30");
  EXPECT_EQ(driver.client("a").prefill->num_external_cached_tokens, 16);
}

TEST(ConnectorTestDriverTest, AReportThatNobodyWaitsForIsSeen) {
  HostDevice device;
  auto worker = std::make_unique<IdleWorker>();
  worker->reports_strangers = true;
  ConnectorTestDriver driver(SmallConfig(), std::make_unique<ScriptedConnector>(),
                             std::move(worker), device);
  driver.Step();
  EXPECT_EQ(driver.violations(),
            std::vector<std::string>{"finished_sending of nobody, which nobody waits for"});
}

}  // namespace
}  // namespace tally
