#include "engine/cli/engine_command.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/core/behavior.h"
#include "engine/events/kv_event_publisher.h"
#include "engine/protocol/protocol_server.h"

namespace tally {
namespace {

struct EngineOptions {
  std::string behavior = "corrected";
  HashAlgorithm hash = HashAlgorithm::kXxh3;
  KvEventPublisher::Options events;
};

double SecondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

absl::StatusOr<std::size_t> ReadStandardInput(char* data, std::size_t size) {
  while (true) {
    const ssize_t count = read(STDIN_FILENO, data, size);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR)
      return absl::UnavailableError(absl::StrCat("standard input: ", std::strerror(errno)));
  }
}

absl::Status WriteStandardOutput(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("standard output: ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

int RunEngine(const EngineOptions& options) {
  // A reader that went away is an error to report, not a signal to die of.
  std::signal(SIGPIPE, SIG_IGN);
  EngineConfig defaults;
  defaults.behavior = *BehaviorByName(options.behavior);
  defaults.kv.hash_algorithm = options.hash;
  ProtocolEngine engine(defaults);
  std::unique_ptr<KvEventPublisher> publisher;
  if (!options.events.endpoint.empty()) {
    auto created = KvEventPublisher::Create(options.events);
    if (!created.ok()) {
      std::fprintf(stderr, "tally engine: kv-events %s\n",
                   std::string(created.status().message()).c_str());
      return 1;
    }
    publisher = *std::move(created);
    std::fprintf(stderr, "tally engine: KV events on %s%s%s\n", publisher->endpoint().c_str(),
                 publisher->replay_endpoint().empty() ? "" : ", replays on ",
                 publisher->replay_endpoint().c_str());
    engine.SetKvEventSink([&publisher](std::span<const KvEvent> events) {
      publisher->Publish(SecondsSince1970(), events);
    });
  }
  const absl::Status status = ServeProtocol(engine, ReadStandardInput, WriteStandardOutput);
  if (publisher != nullptr && publisher->num_dropped() > 0) {
    std::fprintf(stderr, "tally engine: %llu batches of KV events were dropped\n",
                 static_cast<unsigned long long>(publisher->num_dropped()));
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "tally engine: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

void AddEngineCommand(CLI::App& app, std::function<int()>& run) {
  const auto options = std::make_shared<EngineOptions>();
  CLI::App* command = app.add_subcommand("engine",
                                         "Answer the commands of the trace format, one JSON object "
                                         "a line, on standard input and output");
  command
      ->add_option("--behavior", options->behavior,
                   "Whose decisions: corrected or vllm_0_20, faults included")
      ->check(CLI::IsMember({"corrected", "vllm_0_20"}))
      ->capture_default_str();
  command->add_option("--hash", options->hash, "Block hashes: xxh3, or sha256_cbor as vLLM's")
      ->transform(CLI::CheckedTransformer(std::map<std::string, HashAlgorithm>{
          {"xxh3", HashAlgorithm::kXxh3}, {"sha256_cbor", HashAlgorithm::kSha256Cbor}}))
      ->default_str("xxh3");
  command->add_option("--kv-events", options->events.endpoint,
                      "Publish KV events of configurations that have them, over ZeroMQ: the "
                      "endpoint to bind, tcp://127.0.0.1:5557 say");
  command->add_option("--kv-events-replay", options->events.replay_endpoint,
                      "Where subscribers ask for batches that they missed");
  command->add_option("--kv-events-topic", options->events.topic, "Topic of the batches");
  command
      ->add_option("--data-parallel-rank", options->events.data_parallel_rank,
                   "Of this engine; added to the ports")
      ->check(CLI::Range(0, 4096));
  command->callback([options, &run] { run = [options] { return RunEngine(*options); }; });
}

}  // namespace tally
