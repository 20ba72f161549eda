#include "engine/cli/replay_command.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cli/paths.h"
#include "engine/cli/progress_bar.h"
#include "engine/workload/generated_workload.h"
#include "engine/workload/replay_config.h"
#include "engine/workload/replay_report.h"
#include "engine/workload/replayer.h"
#include "engine/workload/workload_file.h"

namespace tally {
namespace {

struct Arguments {
  std::string file;
  std::string config_file;
  std::string json_file;
  bool skip_bad_rows = false;
  std::optional<std::int32_t> tokens_per_hash;
  std::optional<std::int64_t> num_requests;
  std::optional<double> requests_per_second;
  std::optional<std::int32_t> concurrency;
  std::uint64_t seed = 0;
  ReplaySettings settings;
  // Flags that turn something off, whatever the configuration file says.
  bool no_prefix_caching = false;
  bool no_chunked_prefill = false;
  bool no_async_scheduling = false;
};

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

void Interrupt(int /*signal*/) { interrupted.store(true); }

// The first SIGINT ends the replay, a second one the program.
void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = Interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

int Fail(const absl::Status& status, int code) {
  fmt::print(stderr, "tally replay: {}\n", std::string(status.message()));
  return code;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  std::string text;
  char chunk[4096];
  std::size_t count = 0;
  while (file != nullptr && (count = std::fread(chunk, 1, sizeof(chunk), file)) > 0) {
    text.append(chunk, count);
  }
  const bool failed = file == nullptr || std::ferror(file) != 0;
  const int error = errno;
  if (file != nullptr) std::fclose(file);
  if (failed) return absl::NotFoundError(fmt::format("{}: {}", path, std::strerror(error)));
  return text;
}

// A full disk shows at the latest when the file is closed.
absl::Status WriteFile(const std::string& path, const std::string& text) {
  errno = 0;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool written = file != nullptr;
  int error = errno;
  if (file != nullptr) {
    written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (!written) error = errno;
    if (std::fclose(file) != 0 && written) {
      written = false;
      error = errno;
    }
  }
  if (written) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("{}: can't be written: {}", path, std::strerror(error)));
}

absl::StatusOr<ReplayConfig> LoadConfig(const Arguments& arguments) {
  ReplaySettings settings;
  if (!arguments.config_file.empty()) {
    const std::string path = ResolvePath(arguments.config_file);
    const absl::StatusOr<std::string> text = ReadFile(path);
    if (!text.ok()) return text.status();
    absl::StatusOr<ReplaySettings> parsed = ParseReplaySettings(*text);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("{}: {}", path, std::string(parsed.status().message())));
    }
    settings = *std::move(parsed);
  }
  ReplaySettings flags = arguments.settings;
  if (arguments.no_prefix_caching) flags.enable_prefix_caching = false;
  if (arguments.no_chunked_prefill) flags.enable_chunked_prefill = false;
  if (arguments.no_async_scheduling) flags.async_scheduling = false;
  return ResolveReplayConfig(Override(std::move(settings), flags));
}

double PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;  // Linux counts in KiB
}

int RunReplay(const Arguments& arguments) {
  const absl::StatusOr<ReplayConfig> config = LoadConfig(arguments);
  if (!config.ok()) return Fail(config.status(), kExitUsage);

  ReplayOptions options;
  options.concurrency = arguments.concurrency;
  options.seed = arguments.seed;
  options.limit = arguments.num_requests.value_or(0);
  options.interrupted = &interrupted;

  std::unique_ptr<WorkloadSource> source;
  const WorkloadFile* file = nullptr;
  if (arguments.file.empty()) {
    GeneratedWorkloadOptions generated;
    generated.seed = arguments.seed;
    if (arguments.num_requests) generated.num_requests = *arguments.num_requests;
    if (arguments.requests_per_second) {
      generated.requests_per_second = *arguments.requests_per_second;
    }
    source = std::make_unique<GeneratedWorkload>(generated);
  } else {
    WorkloadFileOptions file_options;
    file_options.skip_bad_rows = arguments.skip_bad_rows;
    file_options.format.tokens_per_hash = arguments.tokens_per_hash;
    absl::StatusOr<std::unique_ptr<WorkloadFile>> opened =
        WorkloadFile::Open(ResolvePath(arguments.file), file_options);
    if (!opened.ok()) return Fail(opened.status(), kExitFailure);
    file = opened->get();
    source = *std::move(opened);
    options.requests_per_second = arguments.requests_per_second;
  }

  CatchInterrupts();
  absl::StatusOr<ReplayReport> report = absl::UnknownError("");
  {
    ProgressBar bar;
    options.on_progress = [&bar](const ReplayProgress& progress) {
      bar.Show(progress.fraction, fmt::format("{} requests done, {:.0f} s of virtual time",
                                              progress.num_done, progress.virtual_time));
    };
    report = Replay(*config, *source, options);
  }
  if (!report.ok()) return Fail(report.status(), kExitFailure);
  report->workload =
      arguments.file.empty() ? "generated, seed " + std::to_string(arguments.seed) : arguments.file;
  if (file != nullptr) report->bad_row_examples = file->bad_rows();

  const std::string table = FormatReplayReport(*report, *config) +
                            fmt::format("  {:<30} {:>16}\n", "peak memory",
                                        fmt::format("{:.0f} MiB", PeakMemoryBytes() / (1 << 20)));
  if (std::fputs(table.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    return Fail(absl::UnavailableError(
                    fmt::format("standard output: can't be written: {}", std::strerror(errno))),
                kExitFailure);
  }
  if (!arguments.json_file.empty()) {
    nlohmann::json json = ReplayReportJson(*report, *config);
    json["run"]["peak_memory_bytes"] = PeakMemoryBytes();
    const std::string text =
        json.dump(2, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace) + "\n";
    if (absl::Status status = WriteFile(ResolvePath(arguments.json_file), text); !status.ok()) {
      return Fail(status, kExitFailure);
    }
  }
  return report->interrupted ? kExitInterrupted : kExitOk;
}

}  // namespace

void AddReplayCommand(CLI::App& app, CommandRunner& run) {
  auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  CLI::App* command = app.add_subcommand(
      "replay", "Replay a workload on the engine, in virtual time, and print what happened");

  command->add_option("FILE", a.file,
                      "Workload: Mooncake, RTP-LLM, Qwen-Bailian or prefill-trace/1 JSON lines, "
                      "Azure 2023 or Vidur CSV, plain or gzip; without it one is generated");
  command->add_option("--config", a.config_file, "Engine, model, GPU and step time, as JSON");
  command->add_option("--json", a.json_file, "Write the report there as JSON too");
  command->add_flag("--skip-bad", a.skip_bad_rows, "Pass broken rows over and count them");
  command->add_option("--limit", a.num_requests, "Requests to replay at most (generated: 2000)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  // Larger numbers would be cut to the largest silently.
  command->add_option("--seed", a.seed, "Of the generated workload and of Poisson arrivals")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 62));
  command
      ->add_option("--tokens-per-hash", a.tokens_per_hash,
                   "Prompt tokens that a hash id stands for, if not the format's number")
      ->check(CLI::Range(1, 1 << 20));
  CLI::Option* rate =
      command
          ->add_option("--rate", a.requests_per_second,
                       "Poisson arrivals, so many requests a second, in place of the file's times")
          ->check(CLI::Range(1e-6, 1e9));
  command
      ->add_option("--concurrency", a.concurrency,
                   "Closed loop: so many requests in the system (lengths without times: 256)")
      ->check(CLI::Range(1, 1 << 20))
      ->excludes(rate);

  ReplaySettings& s = a.settings;
  command->add_option("--model", s.model, "llama-3.1-8b or llama-3.1-70b")->group("Engine");
  command->add_option("--gpu", s.gpu, "a100, h100 or h200")->group("Engine");
  command->add_option("--tensor-parallel-size", s.tensor_parallel_size, "GPUs")
      ->check(CLI::Range(1, 8))
      ->group("Engine");
  command->add_option("--gpu-memory-utilization", s.gpu_memory_utilization, "Above 0, up to 1")
      ->check(CLI::Range(1e-3, 1.0))
      ->group("Engine");
  command->add_option("--num-blocks", s.num_blocks, "KV blocks, the null block included")
      ->check(CLI::Range(2, 1 << 29))
      ->group("Engine");
  command->add_option("--block-size", s.block_size, "Tokens a block")
      ->check(CLI::Range(1, 1 << 20))
      ->group("Engine");
  command->add_option("--max-num-seqs", s.max_num_seqs, "Running requests")
      ->check(CLI::Range(1, 1 << 20))
      ->group("Engine");
  command->add_option("--max-num-batched-tokens", s.max_num_batched_tokens, "Tokens a step")
      ->check(CLI::Range(1, 1 << 29))
      ->group("Engine");
  command->add_option("--max-model-len", s.max_model_len, "Tokens of a sequence")
      ->check(CLI::Range(2, 1 << 29))
      ->group("Engine");
  command
      ->add_option("--long-prefill-token-threshold", s.long_prefill_token_threshold,
                   "Tokens of one prefill in a step; 0: no limit")
      ->check(CLI::Range(0, 1 << 29))
      ->group("Engine");
  command->add_option("--policy", s.policy, "fcfs or priority (the lower value goes first)")
      ->check(CLI::IsMember({"fcfs", "priority"}))
      ->group("Engine");
  command->add_option("--behavior", s.behavior, "corrected or vllm_0_20")
      ->check(CLI::IsMember({"corrected", "vllm_0_20"}))
      ->group("Engine");
  command
      ->add_option("--connector", s.connector,
                   "offload (to host memory) or store (shared, over the network)")
      ->check(CLI::IsMember({"none", "offload", "store"}))
      ->group("Engine");
  command
      ->add_option("--connector-gib", s.connector_gib, "What it holds (offload: 256, store: 4096)")
      ->check(CLI::Range(1e-3, 1e7))
      ->group("Engine");
  command
      ->add_option("--connector-gb-s", s.connector_gb_s,
                   "Its link, each way (offload: 55 a GPU, store: 50)")
      ->check(CLI::Range(1e-6, 1e6))
      ->group("Engine");
  command->add_option("--connector-eviction", s.connector_eviction, "lru or arc")
      ->check(CLI::IsMember({"lru", "arc"}))
      ->group("Engine");
  command->add_flag("--no-prefix-caching", a.no_prefix_caching, "Compute every prompt in full")
      ->group("Engine");
  command->add_flag("--no-chunked-prefill", a.no_chunked_prefill, "A prompt in one step")
      ->group("Engine");
  command
      ->add_flag("--no-async-scheduling", a.no_async_scheduling,
                 "Plan a step when the one before has ended")
      ->group("Engine");

  command->callback([&run, arguments] { run = [arguments] { return RunReplay(*arguments); }; });
}

}  // namespace tally
