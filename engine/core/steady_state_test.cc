// In a steady state Schedule and Update allocate nothing: every buffer was large enough before. The
// state is steady when requests of the usual sizes have come and gone for a while.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "engine/core/scheduler.h"

namespace {

bool counting = false;
std::size_t allocations = 0;

void* Allocate(std::size_t size) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace tally {
namespace {

class Engine {
 public:
  explicit Engine(const EngineConfig& config) : scheduler_(*Scheduler::Create(config)) {}

  void Add() {
    std::vector<TokenId> prompt(static_cast<std::size_t>(40 + added_ % 3 * 16));
    // Half of them share a prefix.
    std::iota(prompt.begin(), prompt.end(), added_ % 2 == 0 ? 0 : 1000 * added_);
    const std::string id = std::to_string(added_++);
    ASSERT_TRUE(scheduler_->AddRequest({.id = id, .prompt = prompt, .max_tokens = 60}, 0).ok());
  }

  // One step of the loop; answers how many requests ended.
  int Step() {
    const auto plan = scheduler_->Schedule(0);
    EXPECT_TRUE(plan.ok());
    counting_pause_ = std::exchange(counting, false);  // the model's part is not ours
    offsets_.assign(1, 0);
    tokens_.clear();
    for (const ScheduledRequest& entry : scheduler_->oldest_outstanding()) {
      if (entry.samples) tokens_.push_back(1 + entry.num_computed_tokens % 50);
      offsets_.push_back(static_cast<std::uint32_t>(tokens_.size()));
    }
    counting = counting_pause_;
    const auto result =
        scheduler_->Update({.sampled_offsets = offsets_, .sampled_tokens = tokens_}, 0);
    EXPECT_TRUE(result.ok());
    int ended = 0;
    for (const RequestOutput& output : result->outputs)
      ended += output.finish_reason != FinishReason::kNone ? 1 : 0;
    return ended;
  }

 private:
  std::unique_ptr<Scheduler> scheduler_;
  int added_ = 0;
  bool counting_pause_ = false;
  std::vector<std::uint32_t> offsets_;
  std::vector<TokenId> tokens_;
};

TEST(SteadyState, ScheduleAndUpdateAllocateNothing) {
  EngineConfig config;
  config.kv.block_size = 16;
  config.kv.num_blocks = 220;  // 32 requests fit, if barely: the pool evicts and preempts
  config.max_num_seqs = 32;
  config.max_num_batched_tokens = 256;
  config.max_model_len = 512;
  Engine engine(config);
  for (int i = 0; i < 40; ++i) engine.Add();
  std::size_t before = 0;
  std::size_t in_steps = 0;
  for (int step = 0; step < 3000; ++step) {
    const bool steady = step >= 2000;
    allocations = 0;
    counting = true;
    const int ended = engine.Step();
    counting = false;
    (steady ? in_steps : before) += allocations;
    for (int i = 0; i < ended; ++i) engine.Add();
  }
  EXPECT_GT(before, 0U) << "allocations are not counted";
  EXPECT_EQ(in_steps, 0U);
}

}  // namespace
}  // namespace tally
