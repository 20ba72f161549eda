// Offloading to host memory with both sides, on real and virtual devices.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/connector/connector_test_driver.h"
#include "engine/connector/host_offload_worker.h"
#include "engine/connector/random_engine.h"
#include "kernels/device/host_device.h"
#include "kernels/device/virtual_device.h"

namespace tally {
namespace {

struct OffloadWorld {
  EngineConfig config = RandomEngine::SmallConfig(40);
  OffloadingConnector::Options offloading{.num_cpu_blocks = 16, .block_size = 4};
};

std::unique_ptr<ConnectorTestDriver> MakeDriver(const OffloadWorld& world, Device& device) {
  const auto factor =
      static_cast<std::uint32_t>(world.offloading.block_size / world.config.kv.block_size);
  return std::make_unique<ConnectorTestDriver>(
      world.config, std::make_unique<OffloadingConnector>(world.offloading),
      std::make_unique<HostOffloadWorker>(HostOffloadWorker::Options{
          .num_slots = world.offloading.num_cpu_blocks, .blocks_per_slot = factor}),
      device);
}

std::vector<TokenId> Prompt(std::size_t length, TokenId first = 1) {
  std::vector<TokenId> prompt(length);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

const OffloadingConnector& Connector(ConnectorTestDriver& driver) {
  return dynamic_cast<const OffloadingConnector&>(*driver.scheduler().connector());
}

TEST(HostOffloadTest, AnEvictedPromptComesBackFromHostMemory) {
  HostDevice device;
  OffloadWorld world;
  world.config.kv.num_blocks = 12;
  auto driver = MakeDriver(world, device);
  ASSERT_TRUE(driver->Add("a", Prompt(30), 1).ok());
  ASSERT_TRUE(driver->Drain());
  for (TokenId i = 1; i <= 2; ++i) {
    ASSERT_TRUE(driver->Add(absl::StrCat("other", i), Prompt(17, 100 * i), 1).ok());
    ASSERT_TRUE(driver->Drain());
  }
  ASSERT_EQ(driver->scheduler().ResetPrefixCache(false, 1000).value(), true);
  ASSERT_TRUE(driver->Add("b", Prompt(30), 1).ok());
  ASSERT_TRUE(driver->Drain());
  const PrefillStats& stats = *driver->client("b").prefill;
  EXPECT_EQ(stats.num_local_cached_tokens, 0);
  EXPECT_EQ(stats.num_external_cached_tokens, 28);
  EXPECT_EQ(stats.num_computed_tokens, 2);
  EXPECT_EQ(driver->violations(), std::vector<std::string>());
  const TransferCounters counters = driver->worker()->counters();
  EXPECT_EQ(counters.directions.at("load").transfers, 1);
  EXPECT_EQ(counters.directions.at("load").bytes,
            7 * static_cast<std::int64_t>(driver->arena().block_bytes()));
  EXPECT_EQ(counters.directions.at("store").bytes,
            15 * static_cast<std::int64_t>(driver->arena().block_bytes()));
  EXPECT_EQ(counters.directions.at("store").queued, 0);
}

TEST(HostOffloadTest, BlocksThatLieTogetherAreOneCopy) {
  HostDevice device;
  OffloadWorld world;
  world.config.max_num_batched_tokens = 64;
  auto driver = MakeDriver(world, device);
  ASSERT_TRUE(driver->Add("a", Prompt(41), 1).ok());
  ASSERT_TRUE(driver->Drain());
  const auto& worker = dynamic_cast<const HostOffloadWorker&>(*driver->worker());
  EXPECT_EQ(worker.num_copies(), 1);  // ten blocks of a fresh pool into ten fresh slots
}

TEST(HostOffloadTest, ALoadMayBeginInTheMiddleOfItsFirstSlot) {
  HostDevice device;
  OffloadWorld world;
  world.offloading.block_size = 16;
  auto driver = MakeDriver(world, device);
  // The first five blocks are on the GPU when b comes: they are computed again for c meanwhile.
  ASSERT_TRUE(driver->Add("a", Prompt(50), 1).ok());
  ASSERT_TRUE(driver->Drain());
  ASSERT_TRUE(driver->scheduler().ResetPrefixCache(false, 1000).value());
  // Shorter than an offloaded block behind the GPU's: c is computed, not loaded.
  ASSERT_TRUE(driver->Add("c", Prompt(15), 1).ok());
  ASSERT_TRUE(driver->Drain());
  ASSERT_TRUE(driver->Add("b", Prompt(50), 1).ok());
  ASSERT_TRUE(driver->Drain());
  EXPECT_EQ(driver->client("b").prefill->num_local_cached_tokens, 12);
  EXPECT_EQ(driver->client("b").prefill->num_external_cached_tokens, 36);
  EXPECT_EQ(driver->violations(), std::vector<std::string>());
  EXPECT_EQ(driver->worker()->counters().directions.at("load").bytes,
            9 * static_cast<std::int64_t>(driver->arena().block_bytes()));
}

TEST(HostOffloadTest, AFailedStoreIsNeverLoaded) {
  VirtualDevice device({.seed = 5});
  OffloadWorld world;
  auto driver = MakeDriver(world, device);
  device.SetFaults(1, 0, 0);
  ASSERT_TRUE(driver->Add("a", Prompt(30), 1).ok());
  ASSERT_TRUE(driver->Drain());
  device.SetFaults(0, 0, 0);
  EXPECT_EQ(driver->worker()->counters().directions.at("store").failures, 2);  // of two steps
  ASSERT_TRUE(driver->scheduler().ResetPrefixCache(false, 1000).value());
  ASSERT_TRUE(driver->Add("b", Prompt(30), 1).ok());
  ASSERT_TRUE(driver->Drain());
  EXPECT_EQ(driver->num_invalid_blocks(), 7);
  EXPECT_EQ(driver->client("b").prefill->num_external_cached_tokens, 0);
  EXPECT_EQ(driver->violations(), std::vector<std::string>());
  EXPECT_TRUE(driver->PoolIsWhole());
}

TEST(HostOffloadTest, ShutdownWithJobsInFlightTwice) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    VirtualDevice device({.seed = seed, .delayed_copies = 0.5});
    OffloadWorld world;
    auto driver = MakeDriver(world, device);
    ASSERT_TRUE(driver->Add("a", Prompt(60), 5).ok());
    for (std::uint64_t i = 0; i < seed % 6; ++i) driver->Step();
    driver->ShutdownWorker();
    driver->ShutdownWorker();
  }
}

// A worker that forgets an edge must be found by the driver: stores that do not wait for the
// forward pass, loads into blocks that the forward pass still uses.
class DeafStream final : public DeviceStream {
 public:
  explicit DeafStream(std::unique_ptr<DeviceStream> stream) : stream_(std::move(stream)) {}
  absl::Status Copy(CopyKind kind, std::span<const BlockCopy> copies) override {
    return stream_->Copy(kind, copies);
  }
  absl::Status Run(std::function<void()> work) override { return stream_->Run(std::move(work)); }
  absl::StatusOr<std::shared_ptr<DeviceEvent>> Record() override { return stream_->Record(); }
  absl::Status WaitFor(std::shared_ptr<DeviceEvent>) override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return stream_->Synchronize(); }

 private:
  std::unique_ptr<DeviceStream> stream_;
};

class DeafDevice final : public Device {
 public:
  explicit DeafDevice(Device& device) : device_(device) {}
  absl::StatusOr<std::unique_ptr<KvArena>> AllocateArena(std::uint32_t num_blocks,
                                                         std::size_t block_bytes) override {
    return device_.AllocateArena(num_blocks, block_bytes);
  }
  absl::StatusOr<std::unique_ptr<KvArena>> AllocateHostArena(std::uint32_t num_blocks,
                                                             std::size_t block_bytes) override {
    return device_.AllocateHostArena(num_blocks, block_bytes);
  }
  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() override {
    return std::make_unique<DeafStream>(*device_.CreateStream());
  }

 private:
  Device& device_;
};

int CorruptSeeds(bool deaf) {
  int corrupt = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    VirtualDevice device({.seed = seed});
    DeafDevice deaf_device(device);
    OffloadWorld world;
    auto driver = MakeDriver(world, deaf ? static_cast<Device&>(deaf_device) : device);
    EXPECT_TRUE(driver->Add("a", Prompt(40), 1).ok());
    EXPECT_TRUE(driver->Drain());
    EXPECT_TRUE(driver->scheduler().ResetPrefixCache(false, 1000).value());
    EXPECT_TRUE(driver->Add("b", Prompt(40), 1).ok());
    EXPECT_TRUE(driver->Drain());
    corrupt += driver->violations().empty() ? 0 : 1;
  }
  return corrupt;
}

TEST(HostOffloadTest, AMissingEdgeIsFoundAndNoneIsMissing) {
  EXPECT_GT(CorruptSeeds(true), 5);
  EXPECT_EQ(CorruptSeeds(false), 0);
}

OffloadWorld ArbitraryWorld() {
  OffloadWorld world;
  world.config = RandomEngine::ArbitraryConfig();
  const std::int32_t factor = *rc::gen::element(1, 2, 3);
  world.offloading.block_size = factor * world.config.kv.block_size;
  world.offloading.num_cpu_blocks = *rc::gen::inRange<std::uint32_t>(0, 24);
  world.offloading.eviction = *rc::gen::element(EvictionPolicy::kLru, EvictionPolicy::kArc);
  return world;
}

void CheckEnd(ConnectorTestDriver& driver) {
  for (const auto& [direction, counters] : driver.worker()->counters().directions) {
    RC_ASSERT(counters.queued == 0);
    RC_ASSERT(counters.failures <= counters.transfers);
  }
  RC_ASSERT(Connector(driver).manager().size() <= Connector(driver).manager().num_slots());
}

RC_GTEST_PROP(HostOffloadProperty, VirtualDevice, (std::uint64_t seed)) {
  const OffloadWorld world = ArbitraryWorld();
  const bool faults = *rc::gen::arbitrary<bool>();
  VirtualDevice device({.seed = seed,
                        .failed_copies = faults ? 0.1 : 0,
                        .refused_copies = faults ? 0.1 : 0,
                        .delayed_copies = faults ? 0.2 : 0});
  auto driver = MakeDriver(world, device);
  RandomEngine engine(*driver);
  engine.RunAndDrain();
  CheckEnd(*driver);
  if (!faults) RC_ASSERT(driver->num_invalid_blocks() == 0);
  const TransferCounters counters = driver->worker()->counters();
  RC_CLASSIFY(counters.directions.at("load").transfers > 0, "loads");
  RC_CLASSIFY(driver->num_invalid_blocks() > 0, "failed loads");
  RC_CLASSIFY(driver->num_preemptions() > 0, "preemptions");
}

RC_GTEST_PROP(HostOffloadProperty, HostDevice, ()) {
  const OffloadWorld world = ArbitraryWorld();
  HostDevice device;
  auto driver = MakeDriver(world, device);
  RandomEngine engine(*driver);
  engine.RunAndDrain();
  CheckEnd(*driver);
  RC_ASSERT(driver->num_invalid_blocks() == 0);
}

}  // namespace
}  // namespace tally
