// Engines that share a folder of KV blocks, with both sides of the connector and real files.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/connector/block_file.h"
#include "engine/connector/connector_test_driver.h"
#include "engine/connector/random_engine.h"
#include "engine/connector/shared_storage_worker.h"
#include "kernels/device/host_device.h"
#include "kernels/device/virtual_device.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = absl::StrCat(::testing::TempDir(), "/shared_XXXXXX");
    root_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(root_); }
  const fs::path& root() const { return root_; }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

 private:
  fs::path root_;
};

// Changes a byte in the middle of the payload.
void Damage(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(80);
  const int byte = file.get();
  file.seekp(80);
  file.put(static_cast<char>(byte ^ 1));
}

std::unique_ptr<ConnectorTestDriver> MakeDriver(const EngineConfig& config, const fs::path& root,
                                                Device& device,
                                                SharedStorageWorker::Options options = {},
                                                std::uint64_t max_bytes = 0) {
  const KvContent content(config.kv.block_size, 2);
  auto folder = std::make_shared<BlockFolder>(BlockFolder::Options{
      .root = root, .model = "test", .block_bytes = content.block_bytes(), .max_bytes = max_bytes});
  return std::make_unique<ConnectorTestDriver>(
      config, std::make_unique<SharedStorageConnector>(folder, SharedStorageConnector::Options()),
      std::make_unique<SharedStorageWorker>(folder, options), device);
}

std::vector<TokenId> Prompt(std::size_t length, TokenId first = 1) {
  std::vector<TokenId> prompt(length);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

// Files are written after the request ended.
void WaitForStores(ConnectorTestDriver& driver) {
  ASSERT_TRUE(driver.RunUntil(
      [&] { return driver.worker()->counters().directions.at("store").queued == 0; }));
}

void Prefill(ConnectorTestDriver& driver, const std::string& id, std::vector<TokenId> prompt) {
  ASSERT_TRUE(driver.Add(id, std::move(prompt), 1).ok());
  ASSERT_TRUE(driver.Drain());
  WaitForStores(driver);
}

TEST(SharedStorageTest, OneEngineFindsWhatAnotherComputed) {
  for (const HashAlgorithm algorithm : {HashAlgorithm::kXxh3, HashAlgorithm::kSha256Cbor}) {
    Folder folder;
    HostDevice device;
    EngineConfig config = RandomEngine::SmallConfig(40);
    config.kv.hash_algorithm = algorithm;
    auto first = MakeDriver(config, folder.root(), device);
    auto second = MakeDriver(config, folder.root(), device);
    Prefill(*first, "a", Prompt(30));
    EXPECT_EQ(folder.Files().size(), 7U);
    EXPECT_EQ(folder.Files()[0].stem().string().size(),
              algorithm == HashAlgorithm::kXxh3 ? 48U : 64U);
    Prefill(*second, "b", Prompt(30));
    EXPECT_EQ(*second->client("b").prefill, PrefillStats::Of(30, 0, 28));
    // Behind a local hit, and up to the last token.
    Prefill(*first, "c", Prompt(40));
    Prefill(*second, "d", Prompt(40));
    EXPECT_EQ(*second->client("d").prefill, PrefillStats::Of(40, 28, 12));
    EXPECT_EQ(first->violations(), std::vector<std::string>());
    EXPECT_EQ(second->violations(), std::vector<std::string>());
    EXPECT_EQ(first->client("a").tokens, second->client("b").tokens);
  }
}

TEST(SharedStorageTest, ADamagedFileFailsItsBlockOnlyAndIsStoredAgain) {
  Folder folder;
  HostDevice device;
  const EngineConfig config = RandomEngine::SmallConfig(40);
  auto first = MakeDriver(config, folder.root(), device);
  Prefill(*first, "a", Prompt(13));
  const std::vector<fs::path> early = folder.Files();
  Prefill(*first, "b", Prompt(17));
  for (const fs::path& path : folder.Files()) {
    if (std::find(early.begin(), early.end(), path) == early.end()) Damage(path);
  }
  Prefill(*first, "c", Prompt(30));
  auto second = MakeDriver(config, folder.root(), device);
  Prefill(*second, "d", Prompt(30));
  EXPECT_EQ(second->num_invalid_blocks(), 1);
  EXPECT_EQ(second->num_computed_tokens(), 30 - 12);  // three blocks in front of it were good
  EXPECT_EQ(second->worker()->counters().directions.at("load").failures, 1);
  EXPECT_EQ(second->violations(), std::vector<std::string>());
  EXPECT_TRUE(second->PoolIsWhole());
  EXPECT_EQ(folder.Files().size(), 7U);
  auto third = MakeDriver(config, folder.root(), device);
  Prefill(*third, "e", Prompt(30));
  EXPECT_EQ(*third->client("e").prefill, PrefillStats::Of(30, 0, 28));
  EXPECT_EQ(third->num_invalid_blocks(), 0);
  EXPECT_EQ(third->violations(), std::vector<std::string>());
}

TEST(SharedStorageTest, AFileThatVanishedFailsItsBlockOnly) {
  Folder root;
  HostDevice device;
  auto arena = *device.AllocateArena(4, 64);
  auto compute = *device.CreateStream();
  auto folder = std::make_shared<BlockFolder>(
      BlockFolder::Options{.root = root.root(), .model = "test", .block_bytes = 64});
  const std::vector<std::byte> bytes(64, std::byte{9});
  ASSERT_TRUE(folder->Write("aaaa", bytes).ok());
  ASSERT_TRUE(folder->Write("cccc", bytes).ok());
  SharedStorageWorker worker(folder, SharedStorageWorker::Options());
  ASSERT_TRUE(worker.RegisterKvCaches(device, *arena, *compute).ok());
  SharedStorageMetadata metadata;
  metadata.load.push_back({.request_id = "a",
                           .gpu_blocks = {BlockId{1}, BlockId{2}, BlockId{3}},
                           .keys = {"aaaa", "bbbb", "cccc"}});
  worker.StartLoadKv(metadata);
  FinishedTransfers done;
  for (int i = 0; i < 2000 && done.finished_recving.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    done = worker.GetFinished({});
  }
  EXPECT_EQ(done.finished_recving, std::vector<std::string>{"a"});
  EXPECT_EQ(done.invalid_blocks, std::vector<BlockId>{BlockId{2}});
  EXPECT_EQ(arena->block(1)[63], std::byte{9});
  EXPECT_EQ(arena->block(3)[63], std::byte{9});
}

TEST(SharedStorageTest, AFolderThatCannotBeUsedIsAMiss) {
  Folder folder;
  std::ofstream(folder.root() / "file") << "x";
  HostDevice device;
  auto driver = MakeDriver(RandomEngine::SmallConfig(40), folder.root() / "file", device);
  Prefill(*driver, "a", Prompt(30));
  EXPECT_EQ(*driver->client("a").prefill, PrefillStats::Of(30, 0, 0));
  EXPECT_EQ(driver->worker()->counters().directions.at("store").failures, 2);
  EXPECT_EQ(driver->worker()->counters().directions.at("store").bytes, 0);
  EXPECT_TRUE(driver->PoolIsWhole());
}

TEST(SharedStorageTest, AFolderForOtherBlocksIsRefused) {
  HostDevice device;
  auto arena = *device.AllocateArena(4, 64);
  auto compute = *device.CreateStream();
  SharedStorageWorker worker(
      std::make_shared<BlockFolder>(BlockFolder::Options{.root = "/nowhere", .block_bytes = 65}),
      SharedStorageWorker::Options());
  const absl::Status status = worker.RegisterKvCaches(device, *arena, *compute);
  EXPECT_EQ(status.message(), "block_bytes: 65, wanted the arena's 64");
  worker.Shutdown();
  worker.Shutdown();
}

TEST(SharedStorageTest, ALoadThatTakesTooLongFails) {
  Folder folder;
  HostDevice device;
  const EngineConfig config = RandomEngine::SmallConfig(40);
  auto first = MakeDriver(config, folder.root(), device);
  Prefill(*first, "a", Prompt(30));
  // No thread reads: the disk hangs.
  auto second = MakeDriver(config, folder.root(), device,
                           {.num_threads = 0, .load_timeout = std::chrono::milliseconds(20)});
  ASSERT_TRUE(second->Add("b", Prompt(30), 1).ok());
  ASSERT_TRUE(second->RunUntilEnded("b"));
  ASSERT_TRUE(second->Drain());
  EXPECT_EQ(second->num_invalid_blocks(), 7);
  EXPECT_EQ(second->violations(), std::vector<std::string>());
  EXPECT_TRUE(second->PoolIsWhole());
}

TEST(SharedStorageTest, TheFolderStaysBelowItsLimit) {
  Folder folder;
  HostDevice device;
  const EngineConfig config = RandomEngine::SmallConfig(40);
  const std::uint64_t file_bytes = 56 + 4 * 2 * 8;
  auto driver = MakeDriver(config, folder.root(), device, {}, 20 * file_bytes);
  for (TokenId i = 0; i < 20; ++i) Prefill(*driver, absl::StrCat("r", i), Prompt(17, 100 * i));
  EXPECT_LE(folder.Files().size(), 24U);
  EXPECT_GE(folder.Files().size(), 16U);
}

TEST(SharedStorageTest, ShutdownWithJobsInFlightTwice) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Folder folder;
    VirtualDevice device({.seed = seed, .delayed_copies = 0.5});
    auto driver =
        MakeDriver(RandomEngine::SmallConfig(40), folder.root(), device, {.staging_blocks = 3});
    ASSERT_TRUE(driver->Add("a", Prompt(60), 5).ok());
    for (std::uint64_t i = 0; i < seed % 8; ++i) driver->Step();
    driver->ShutdownWorker();
    driver->ShutdownWorker();
  }
}

// Two engines on one folder; files are damaged, cut and removed meanwhile, copies fail.
RC_GTEST_PROP(SharedStorageProperty, TwoEngines, (std::uint64_t seed)) {
  Folder folder;
  const bool faults = *rc::gen::arbitrary<bool>();
  VirtualDevice device({.seed = seed,
                        .failed_copies = faults ? 0.05 : 0,
                        .refused_copies = faults ? 0.05 : 0,
                        .delayed_copies = faults ? 0.2 : 0});
  SharedStorageWorker::Options options;
  options.num_threads = *rc::gen::inRange<std::size_t>(1, 4);
  options.staging_blocks = *rc::gen::inRange<std::uint32_t>(1, 12);
  options.blocks_per_job = *rc::gen::inRange<std::size_t>(1, 5);
  const EngineConfig config = RandomEngine::ArbitraryConfig();
  const std::uint64_t max_bytes = *rc::gen::element<std::uint64_t>(0, 3000);
  auto first = MakeDriver(config, folder.root(), device, options, max_bytes);
  auto second = MakeDriver(config, folder.root(), device, options, max_bytes);
  RandomEngine first_engine(*first);
  RandomEngine second_engine(*second);
  const int commands = *rc::gen::inRange(0, 80);
  for (int i = 0; i < commands; ++i) {
    (*rc::gen::arbitrary<bool>() ? first_engine : second_engine).Command();
    // Drawn whatever the folder holds: that depends on threads, and what is drawn must not.
    const int fault = *rc::gen::inRange(0, 24);
    const auto drawn = static_cast<std::size_t>(*rc::gen::inRange(0, 1 << 20));
    if (!faults || fault > 2) continue;
    std::vector<fs::path> files;
    try {
      files = folder.Files();
    } catch (const fs::filesystem_error&) {
      continue;  // others change the folder while it is listed
    }
    if (files.empty()) continue;
    const fs::path path = files[drawn % files.size()];
    std::error_code gone;
    switch (fault) {
      case 0:
        fs::remove(path, gone);
        break;
      case 1:
        fs::resize_file(path, 100, gone);
        break;
      default:
        if (fs::exists(path, gone)) Damage(path);
    }
  }
  first_engine.Drain();
  second_engine.Drain();
  for (ConnectorTestDriver* driver : {first.get(), second.get()}) {
    RC_ASSERT(driver->worker()->counters().directions.at("load").queued == 0);
    RC_CLASSIFY(driver->worker()->counters().directions.at("load").bytes > 0, "loads");
    RC_CLASSIFY(driver->num_invalid_blocks() > 0, "failed loads");
    RC_CLASSIFY(driver->num_preemptions() > 0, "preemptions");
  }
}

}  // namespace
}  // namespace tally
