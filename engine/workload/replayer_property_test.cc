// Whatever the workload and the engine, every request and every token is accounted for.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <utility>
#include <vector>

#include "engine/workload/prefix_bound.h"
#include "engine/workload/replayer.h"
#include "engine/workload/row_format.h"
#include "engine/workload/token_expansion.h"

namespace tally {
namespace {

class RandomSource : public WorkloadSource {
 public:
  explicit RandomSource(std::deque<WorkloadRequest> requests) : requests_(std::move(requests)) {}
  std::string_view format() const override { return "random"; }
  bool has_arrivals() const override { return true; }
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
};

std::deque<WorkloadRequest> RandomRequests() {
  std::deque<WorkloadRequest> requests;
  const int count = *rc::gen::inRange(0, 60);
  Seconds arrival = 0;
  for (int i = 0; i < count; ++i) {
    WorkloadRequest request;
    request.row = i + 1;
    arrival += *rc::gen::inRange(0, 4);
    request.arrival = arrival;
    const int num_ids = *rc::gen::inRange(0, 6);
    std::vector<std::uint64_t> ids;
    for (int id = 0; id < num_ids; ++id) {
      // Few ids at each place, so that prefixes meet.
      ids.push_back(static_cast<std::uint64_t>(id * 3 + *rc::gen::inRange(0, 2)));
    }
    request.num_prompt_tokens = num_ids * 10 + *rc::gen::inRange(num_ids == 0 ? 1 : 0, 10);
    request.num_output_tokens = *rc::gen::inRange(1, 30);
    request.priority = *rc::gen::inRange(-2, 3);
    request.output_seed = StreamSeed(StreamKind::kOutput, static_cast<std::uint64_t>(i), 0);
    RC_ASSERT(SetHashedPrompt(ids, 10, request));
    requests.push_back(std::move(request));
  }
  return requests;
}

RC_GTEST_PROP(ReplayerPropertyTest, EveryRequestAndTokenIsAccountedFor, ()) {
  ReplaySettings settings;
  settings.block_size = *rc::gen::element(1, 4, 8);
  settings.num_blocks = *rc::gen::inRange(2, 60);
  settings.max_num_seqs = *rc::gen::inRange(1, 8);
  settings.max_num_batched_tokens = *rc::gen::inRange(8, 64);
  settings.max_model_len = *rc::gen::inRange(20, 100);
  settings.enable_prefix_caching = *rc::gen::arbitrary<bool>();
  settings.scheduler_reserve_full_isl = *rc::gen::arbitrary<bool>();
  settings.async_scheduling = *rc::gen::arbitrary<bool>();
  settings.policy = *rc::gen::element<std::string>("fcfs", "priority");
  settings.behavior = *rc::gen::element<std::string>("corrected", "vllm_0_20");
  settings.linear = LinearParameters{.fixed = 0.25, .per_prefill_token = 0.01};
  const absl::StatusOr<ReplayConfig> config = ResolveReplayConfig(settings);
  RC_ASSERT(config.ok());
  ReplayOptions options;
  if (*rc::gen::arbitrary<bool>()) options.concurrency = *rc::gen::inRange(1, 10);

  const std::deque<WorkloadRequest> requests = RandomRequests();
  std::int64_t outputs = 0, prompts = 0;
  PrefixBound bound;  // over the requests that can run
  for (const WorkloadRequest& request : requests) {
    const std::int32_t tokens = request.num_prompt_tokens + request.num_output_tokens;
    const auto blocks = static_cast<std::uint32_t>(CeilDiv(tokens, *settings.block_size));
    if (tokens > *settings.max_model_len || blocks > config->engine.kv.num_blocks - 1) continue;
    bound.Add(request);
    prompts += request.num_prompt_tokens;
    outputs += request.num_output_tokens;
  }
  RandomSource source(requests);
  const absl::StatusOr<ReplayReport> report = Replay(*config, source, options);
  RC_ASSERT(report.ok());
  RC_ASSERT(report->accounted());
  RC_ASSERT(report->num_read == static_cast<std::int64_t>(requests.size()));
  RC_ASSERT(report->num_done + report->num_rejected == report->num_read);
  RC_ASSERT(report->num_first_outputs == report->num_done);
  RC_ASSERT(report->num_prompt_tokens == prompts);
  RC_ASSERT(report->num_computed_tokens + report->num_local_cached_tokens +
                report->num_external_cached_tokens ==
            prompts);
  RC_ASSERT(report->num_output_tokens == outputs);
  RC_ASSERT(report->ttft.count() == report->num_done);
  RC_ASSERT(report->end_to_end.count() == report->num_done);
  RC_ASSERT(report->inter_token.count() == outputs - report->num_done);
  // No cache can hold more than an infinite one. Only a request's own blocks, found again after a
  // preemption, can make it seem so, and only where they count as hits (BUG-1).
  if (report->num_preemptions == 0 ||
      !config->engine.behavior.prefill_stats_overwritten_after_preemption) {
    RC_ASSERT(report->num_local_cached_tokens <= bound.num_reusable_tokens());
  }
}

}  // namespace
}  // namespace tally
