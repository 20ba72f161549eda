// The CPU time between two GPU steps: Schedule and Update, as a server calls them.
//
//   bazel run -c opt //bench:scheduling_loop -- --benchmark_filter=Decode
//
// `per_request_step` is the time of a step over the requests that it schedules.
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/core/scheduler.h"

namespace tally {
namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::int32_t kEndless = 1 << 20;  // no request of a measured loop ends

class Engine {
 public:
  explicit Engine(const EngineConfig& config) : scheduler_(*Scheduler::Create(config)) {}

  void Add(std::size_t prompt_tokens, TokenId first, std::int32_t max_tokens) {
    prompt_.resize(prompt_tokens);
    std::iota(prompt_.begin(), prompt_.end(), first);
    const std::string id = std::to_string(added_++);
    if (!scheduler_->AddRequest({.id = id, .prompt = prompt_, .max_tokens = max_tokens}, 0).ok())
      std::abort();
  }

  // Requests that were scheduled.
  std::int64_t Step() {
    const auto plan = scheduler_->Schedule(0);
    const auto scheduled = static_cast<std::int64_t>(plan->requests.size());
    offsets_.assign(1, 0);
    tokens_.clear();
    for (const ScheduledRequest& entry : plan->requests) {
      if (entry.samples) tokens_.push_back(7);
      offsets_.push_back(static_cast<std::uint32_t>(tokens_.size()));
    }
    benchmark::DoNotOptimize(
        scheduler_->Update({.sampled_offsets = offsets_, .sampled_tokens = tokens_}, 0));
    return scheduled;
  }

  Scheduler& scheduler() { return *scheduler_; }

 private:
  std::unique_ptr<Scheduler> scheduler_;
  int added_ = 0;
  std::vector<TokenId> prompt_;
  std::vector<std::uint32_t> offsets_;
  std::vector<TokenId> tokens_;
};

EngineConfig Config(std::int64_t running) {
  EngineConfig config;
  config.kv.block_size = kBlockSize;
  // Room for a few thousand tokens of each.
  config.kv.num_blocks = static_cast<std::uint32_t>(
      std::min<std::int64_t>(running * 200 + 100'000, std::int64_t{1} << 24));
  config.max_num_seqs = static_cast<std::int32_t>(running);
  config.max_num_batched_tokens = static_cast<std::int32_t>(std::max<std::int64_t>(running, 8192));
  config.max_model_len = kEndless + 64;
  config.kv.max_model_len = config.max_model_len;
  config.scheduler_reserve_full_isl = false;
  return config;
}

void SetRate(benchmark::State& state, std::int64_t request_steps) {
  state.counters["per_request_step"] =
      benchmark::Counter(static_cast<double>(request_steps),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// Decode only, prefix caching on; `waiting` requests stand behind and are never admitted.
void Decode(benchmark::State& state) {
  const std::int64_t running = state.range(0);
  const std::int64_t waiting = state.range(1);
  Engine engine(Config(running));
  for (std::int64_t i = 0; i < running; ++i)
    engine.Add(32, static_cast<TokenId>(i * 100 % (1 << 30)), kEndless);
  while (engine.scheduler().running().size() < static_cast<std::size_t>(running)) engine.Step();
  for (std::int64_t i = 0; i < waiting; ++i)
    engine.Add(32, static_cast<TokenId>(i * 100 % (1 << 30)), kEndless);
  for (int i = 0; i < 2 * kBlockSize; ++i) engine.Step();
  std::int64_t request_steps = 0;
  for (auto _ : state) request_steps += engine.Step();
  SetRate(state, request_steps);
}
BENCHMARK(Decode)
    ->ArgNames({"running", "waiting"})
    ->Args({64, 0})
    ->Args({256, 0})
    ->Args({1024, 0})
    ->Args({8192, 0})
    ->Args({65536, 0})
    ->Args({256, 1'000'000})
    ->Iterations(1000)
    ->Repetitions(3)
    ->ReportAggregatesOnly();

// A hundred requests whose prompts are cached to a part; what is measured is their way from
// AddRequest to the end of their prefill.
void Admit(benchmark::State& state) {
  const auto prompt_tokens = static_cast<std::size_t>(state.range(0));
  const std::int64_t cached_percent = state.range(1);
  constexpr std::int64_t kRequests = 100;
  EngineConfig config = Config(kRequests);
  config.max_num_batched_tokens = 1 << 26;
  config.kv.num_blocks = static_cast<std::uint32_t>(
      (static_cast<std::int64_t>(prompt_tokens) / kBlockSize + 2) * (kRequests + 4) * 2);
  config.max_model_len = 1 << 20;
  std::int64_t tokens = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto engine = std::make_unique<Engine>(config);
    // Tokens count up from 0: a prompt that begins elsewhere shares nothing.
    engine->Add(prompt_tokens * static_cast<std::size_t>(cached_percent) / 100 + 1, 0, 1);
    engine->Step();
    state.ResumeTiming();
    for (std::int64_t i = 0; i < kRequests; ++i)
      engine->Add(prompt_tokens, cached_percent > 0 ? 0 : static_cast<TokenId>(i * 1'000'000), 1);
    while (engine->scheduler().num_unfinished() > 0) engine->Step();
    tokens += kRequests * static_cast<std::int64_t>(prompt_tokens);
    state.PauseTiming();
    engine.reset();
    state.ResumeTiming();
  }
  state.counters["per_prompt_token"] = benchmark::Counter(
      static_cast<double>(tokens), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(Admit)
    ->ArgNames({"prompt", "cached_percent"})
    ->ArgsProduct({{512, 8192, 131072}, {0, 50, 100}})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(3);

// A pool that is too small for what runs: each step preempts, and admits again.
void PreemptionStorm(benchmark::State& state) {
  EngineConfig config = Config(256);
  config.kv.num_blocks = 256 * 4;
  Engine engine(config);
  for (int i = 0; i < 256; ++i) engine.Add(60, i * 1000, kEndless);
  for (int i = 0; i < 100; ++i) engine.Step();
  std::int64_t request_steps = 0;
  for (auto _ : state) request_steps += engine.Step();
  SetRate(state, request_steps);
}
BENCHMARK(PreemptionStorm)->Iterations(2000);

}  // namespace
}  // namespace tally
