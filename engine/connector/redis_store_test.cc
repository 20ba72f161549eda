// A store of KV blocks over a real Redis server, which the test starts on a socket in its own
// folder: shared by engines, killed, stopped, restarted, full, and full of wrong data.
#include "engine/connector/redis_store.h"

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>
#include <rapidcheck/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/connector/connector_test_driver.h"
#include "engine/connector/kv_content.h"
#include "engine/connector/random_engine.h"
#include "engine/connector/shared_storage_connector.h"
#include "engine/connector/shared_storage_worker.h"
#include "kernels/device/host_device.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr const char* kServer = "/usr/bin/redis-server";

class Server {
 public:
  explicit Server(std::vector<std::string> more = {}) : more_(std::move(more)) {
    std::string name = "/tmp/redis_XXXXXX";  // a socket's path is short
    folder_ = ::mkdtemp(name.data());
    Start();
  }
  ~Server() {
    Kill();
    fs::remove_all(folder_);
  }

  std::string socket() const { return absl::StrCat(folder_.string(), "/s"); }

  void Start() {
    std::vector<std::string> words = {kServer,
                                      "--port",
                                      "0",
                                      "--unixsocket",
                                      socket(),
                                      "--save",
                                      "",
                                      "--appendonly",
                                      "no",
                                      "--daemonize",
                                      "no",
                                      "--dir",
                                      folder_.string(),
                                      "--logfile",
                                      folder_.string() + "/log"};
    words.insert(words.end(), more_.begin(), more_.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      ::execv(kServer, argv.data());
      ::_exit(127);
    }
    for (int i = 0; i < 1000; ++i) {
      redisContext* connection = redisConnectUnix(socket().c_str());
      const bool up = connection != nullptr && connection->err == 0;
      if (connection != nullptr) redisFree(connection);
      if (up) return;
      std::this_thread::sleep_for(milliseconds(10));
    }
    FAIL() << "the server does not start";
  }
  void Kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGCONT);
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  void Signal(int signal) { ::kill(process_, signal); }

  // One command, past the store.
  std::string Command(const std::vector<std::string>& words) {
    redisContext* connection = redisConnectUnix(socket().c_str());
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    auto* reply = static_cast<redisReply*>(
        redisCommandArgv(connection, static_cast<int>(texts.size()), texts.data(), sizes.data()));
    std::string answer;
    if (reply != nullptr && reply->type == REDIS_REPLY_INTEGER) {
      answer = absl::StrCat(reply->integer);
    } else if (reply != nullptr && reply->str != nullptr) {
      answer.assign(reply->str, reply->len);
    }
    if (reply != nullptr) freeReplyObject(reply);
    redisFree(connection);
    return answer;
  }

 private:
  const std::vector<std::string> more_;
  fs::path folder_;
  pid_t process_ = 0;
};

class RedisStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(kServer)) GTEST_SKIP() << "no redis-server (Debian: redis-server)";
  }

  static RedisStore::Options OptionsFor(const Server& server, std::size_t block_bytes = 64) {
    RedisStore::Options options;
    options.unix_socket = server.socket();
    options.model = "test";
    options.block_bytes = block_bytes;
    // Patient: a busy machine is no slow server.
    options.connect_timeout = milliseconds(5000);
    options.command_timeout = milliseconds(10'000);
    options.retry_after = milliseconds(20);
    return options;
  }
  static std::vector<std::byte> Block(int value, std::size_t bytes = 64) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
  }
  static absl::Status Write(const RedisStore& store, std::string_view key,
                            const std::vector<std::byte>& block) {
    BlockWrite write{.key = key, .block = block, .status = absl::UnknownError("")};
    store.Write(std::span(&write, 1));
    return write.status;
  }
  static absl::Status Read(const RedisStore& store, std::string_view key,
                           std::vector<std::byte>& block) {
    BlockRead read{.key = key, .block = block, .status = absl::UnknownError("")};
    store.Read(std::span(&read, 1));
    return read.status;
  }
};

TEST_F(RedisStoreTest, WhatIsWrittenIsRead) {
  Server server;
  const RedisStore store(OptionsFor(server));
  const auto one = Block(1), two = Block(2);
  std::vector<BlockWrite> writes = {{"aaaa", one, {}}, {"bbbb", two, {}}};
  store.Write(writes);
  EXPECT_TRUE(writes[0].status.ok() && writes[1].status.ok());
  auto first = Block(0), second = Block(0), third = Block(0);
  std::vector<BlockRead> reads = {{"aaaa", first, {}}, {"cccc", third, {}}, {"bbbb", second, {}}};
  store.Read(reads);
  EXPECT_TRUE(reads[0].status.ok() && reads[2].status.ok());
  EXPECT_EQ(first, one);
  EXPECT_EQ(second, two);
  EXPECT_TRUE(absl::IsNotFound(reads[1].status));
  EXPECT_EQ(store.HeldPrefix(std::vector<std::string>{"aaaa", "bbbb", "cccc", "aaaa"}), 2U);
  EXPECT_EQ(store.HeldPrefix(std::vector<std::string>{"cccc", "aaaa"}), 0U);
  store.Remove("aaaa");
  EXPECT_EQ(store.HeldPrefix(std::vector<std::string>{"aaaa"}), 0U);
}

TEST_F(RedisStoreTest, WrongDataIsNeverABlock) {
  Server server;
  const RedisStore store(OptionsFor(server));
  const RedisStore other_model = [&] {
    RedisStore::Options options = OptionsFor(server);
    options.model = "other";
    return RedisStore(options);
  }();
  ASSERT_TRUE(Write(store, "aaaa", Block(1)).ok());
  std::vector<std::byte> block = Block(0);
  EXPECT_TRUE(absl::IsNotFound(Read(other_model, "aaaa", block)));

  const std::string value = server.Command({"GET", store.NameOf("aaaa")});
  ASSERT_EQ(value.size(), 56U + 64U);
  for (std::size_t i = 0; i < value.size(); ++i) {
    std::string damaged = value;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    server.Command({"SET", store.NameOf("aaaa"), damaged});
    EXPECT_TRUE(absl::IsDataLoss(Read(store, "aaaa", block))) << i;
  }
  for (const std::string& wrong :
       {std::string(), std::string("x"), value + "x", value.substr(0, value.size() - 1)}) {
    server.Command({"SET", store.NameOf("aaaa"), wrong});
    EXPECT_TRUE(absl::IsDataLoss(Read(store, "aaaa", block)));
  }
  server.Command({"SET", store.NameOf("bbbb"), value});  // under another's name
  EXPECT_TRUE(absl::IsDataLoss(Read(store, "bbbb", block)));
  server.Command({"DEL", store.NameOf("aaaa")});
  server.Command({"LPUSH", store.NameOf("aaaa"), "x"});
  EXPECT_TRUE(absl::IsDataLoss(Read(store, "aaaa", block)));
}

TEST_F(RedisStoreTest, AServerThatIsGoneIsAMissAndComesBack) {
  Server server;
  const RedisStore store(OptionsFor(server));
  ASSERT_TRUE(Write(store, "aaaa", Block(1)).ok());
  server.Kill();
  std::vector<std::byte> block = Block(0);
  EXPECT_TRUE(absl::IsUnavailable(Read(store, "aaaa", block)));
  EXPECT_TRUE(absl::IsUnavailable(Write(store, "bbbb", Block(2))));
  EXPECT_EQ(store.HeldPrefix(std::vector<std::string>{"aaaa"}), 0U);
  server.Start();
  std::this_thread::sleep_for(milliseconds(40));
  EXPECT_TRUE(absl::IsNotFound(Read(store, "aaaa", block)));  // it kept nothing
  EXPECT_TRUE(Write(store, "aaaa", Block(3)).ok());
  EXPECT_TRUE(Read(store, "aaaa", block).ok());
  EXPECT_EQ(block, Block(3));
}

TEST_F(RedisStoreTest, ASlowServerEndsEveryCallInTime) {
  Server server;
  RedisStore::Options options = OptionsFor(server);
  options.command_timeout = milliseconds(1000);
  const RedisStore store(options);
  ASSERT_TRUE(Write(store, "aaaa", Block(1)).ok());
  server.Signal(SIGSTOP);
  std::vector<std::byte> block = Block(0);
  EXPECT_TRUE(absl::IsUnavailable(Read(store, "aaaa", block)));
  EXPECT_TRUE(absl::IsUnavailable(Read(store, "aaaa", block)));  // not tried again at once
  server.Signal(SIGCONT);
  std::this_thread::sleep_for(milliseconds(40));
  // The late answer to the first command is nobody's: another connection asks again.
  ASSERT_TRUE(Write(store, "bbbb", Block(2)).ok());
  EXPECT_TRUE(Read(store, "bbbb", block).ok());
  EXPECT_EQ(block, Block(2));
}

TEST_F(RedisStoreTest, BlocksExpire) {
  Server server;
  RedisStore::Options options = OptionsFor(server);
  options.time_to_live = std::chrono::seconds(100);
  const RedisStore store(options);
  ASSERT_TRUE(Write(store, "aaaa", Block(1)).ok());
  const int left = std::stoi(server.Command({"TTL", store.NameOf("aaaa")}));
  EXPECT_GT(left, 50);
  EXPECT_LE(left, 100);
  server.Command({"PEXPIRE", store.NameOf("aaaa"), "1"});
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(store.HeldPrefix(std::vector<std::string>{"aaaa"}), 0U);
}

TEST_F(RedisStoreTest, WhatIsThereIsNotWrittenAgain) {
  Server server;
  const RedisStore store(OptionsFor(server));
  ASSERT_TRUE(Write(store, "aaaa", Block(1)).ok());
  ASSERT_TRUE(Write(store, "aaaa", Block(2)).ok());
  std::vector<std::byte> block = Block(0);
  ASSERT_TRUE(Read(store, "aaaa", block).ok());
  EXPECT_EQ(block, Block(1));
}

TEST_F(RedisStoreTest, ValuesOverTheLimitAndFullServersAreRefused) {
  Server server({"--maxmemory", "3mb", "--maxmemory-policy", "noeviction"});
  RedisStore::Options options = OptionsFor(server, 1 << 20);
  const RedisStore store(options);
  options.max_value_bytes = 1 << 20;
  const RedisStore small(options);
  const auto block = Block(1, 1 << 20);
  EXPECT_TRUE(absl::IsResourceExhausted(Write(small, "aaaa", block)));
  absl::Status status;
  for (int i = 0; i < 8 && status.ok(); ++i) status = Write(store, absl::StrCat("key", i), block);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_NE(status.message().find("OOM"), absl::string_view::npos) << status;
}

std::unique_ptr<ConnectorTestDriver> MakeDriver(const EngineConfig& config,
                                                RedisStore::Options options, Device& device) {
  const KvContent content(config.kv.block_size, 2);
  options.block_bytes = content.block_bytes();
  auto store = std::make_shared<RedisStore>(options);
  return std::make_unique<ConnectorTestDriver>(
      config, std::make_unique<SharedStorageConnector>(store, SharedStorageConnector::Options()),
      std::make_unique<SharedStorageWorker>(store, SharedStorageWorker::Options()), device);
}

std::vector<TokenId> Prompt(std::size_t length, TokenId first = 1) {
  std::vector<TokenId> prompt(length);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

void Prefill(ConnectorTestDriver& driver, const std::string& id, std::vector<TokenId> prompt) {
  ASSERT_TRUE(driver.Add(id, std::move(prompt), 1).ok());
  ASSERT_TRUE(driver.Drain());
  ASSERT_TRUE(driver.RunUntil(
      [&] { return driver.worker()->counters().directions.at("store").queued == 0; }));
}

TEST_F(RedisStoreTest, OneEngineFindsWhatAnotherComputed) {
  Server server;
  HostDevice device;
  const EngineConfig config = RandomEngine::SmallConfig(40);
  auto first = MakeDriver(config, OptionsFor(server), device);
  auto second = MakeDriver(config, OptionsFor(server), device);
  Prefill(*first, "a", Prompt(30));
  EXPECT_EQ(server.Command({"DBSIZE"}), "7");
  Prefill(*second, "b", Prompt(30));
  EXPECT_EQ(*second->client("b").prefill, PrefillStats::Of(30, 0, 28));
  EXPECT_EQ(second->worker()->counters().directions.at("load").failures, 0);
  EXPECT_GT(second->worker()->counters().directions.at("load").bytes, 0);
  EXPECT_EQ(first->violations(), std::vector<std::string>());
  EXPECT_EQ(second->violations(), std::vector<std::string>());
}

TEST_F(RedisStoreTest, ADamagedBlockIsComputedHere) {
  Server server;
  HostDevice device;
  const EngineConfig config = RandomEngine::SmallConfig(40);
  auto first = MakeDriver(config, OptionsFor(server), device);
  Prefill(*first, "a", Prompt(30));
  const std::string name = server.Command({"RANDOMKEY"});
  server.Command({"SETRANGE", name, "70", "wrong"});
  auto second = MakeDriver(config, OptionsFor(server), device);
  Prefill(*second, "b", Prompt(30));
  EXPECT_EQ(second->num_invalid_blocks(), 1);
  EXPECT_EQ(second->violations(), std::vector<std::string>());
  EXPECT_TRUE(second->PoolIsWhole());
}

// Killed, stopped and started again under two engines: no wrong byte, no lost block, no hang.
TEST_F(RedisStoreTest, AServerThatComesAndGoes) {
  Server server;
  HostDevice device;
  const EngineConfig config = RandomEngine::SmallConfig(30);
  RedisStore::Options options = OptionsFor(server);
  options.command_timeout = milliseconds(300);
  auto first = MakeDriver(config, options, device);
  auto second = MakeDriver(config, options, device);
  for (int round = 0; round < 6; ++round) {
    for (ConnectorTestDriver* driver : {first.get(), second.get()}) {
      for (TokenId i = 0; i < 4; ++i) {
        ASSERT_TRUE(
            driver
                ->Add(absl::StrCat("r", round, "_", i), Prompt(24, 100 * ((i + round) % 5) + 1), 3)
                .ok());
      }
    }
    for (int step = 0; step < 5; ++step) {
      first->Step();
      second->Step();
    }
    if (round == 1 || round == 3) server.Kill();
    if (round == 2 || round == 4) server.Start();
    if (round == 5) server.Signal(SIGSTOP);
    EXPECT_TRUE(first->Drain());
    EXPECT_TRUE(second->Drain());
  }
  for (ConnectorTestDriver* driver : {first.get(), second.get()}) {
    EXPECT_EQ(driver->violations(), std::vector<std::string>());
    EXPECT_TRUE(driver->PoolIsWhole());
    driver->ShutdownWorker();
    driver->ShutdownWorker();
  }
}

}  // namespace
}  // namespace tally
