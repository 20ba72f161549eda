#include "engine/workload/replay_config.h"

#include <gtest/gtest.h>

#include <string>

namespace tally {
namespace {

std::string ErrorOf(std::string_view json) {
  const absl::StatusOr<ReplaySettings> settings = ParseReplaySettings(json);
  if (!settings.ok()) return std::string(settings.status().message());
  const absl::StatusOr<ReplayConfig> config = ResolveReplayConfig(*settings);
  return config.ok() ? "ok" : std::string(config.status().message());
}

ReplayConfig Resolve(std::string_view json) {
  const absl::StatusOr<ReplaySettings> settings = ParseReplaySettings(json);
  EXPECT_TRUE(settings.ok()) << settings.status().ToString();
  const absl::StatusOr<ReplayConfig> config = ResolveReplayConfig(*settings);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return *config;
}

// scheduler.md section 8: what a vLLM server has on such a GPU.
TEST(ReplayConfigTest, DefaultsAreThoseOfAServer) {
  const ReplayConfig h100 = Resolve("{}");
  EXPECT_EQ(h100.model.name, "llama-3.1-8b");
  EXPECT_EQ(h100.num_gpus, 1);
  EXPECT_EQ(h100.engine.max_num_seqs, 1024);
  EXPECT_EQ(h100.engine.max_num_batched_tokens, 8192);
  EXPECT_EQ(h100.engine.max_model_len, 131'072);
  EXPECT_EQ(h100.engine.kv.block_size, 16);
  EXPECT_TRUE(h100.engine.kv.enable_prefix_caching);
  EXPECT_TRUE(h100.engine.async_scheduling);
  EXPECT_TRUE(h100.engine.enable_chunked_prefill);
  EXPECT_TRUE(h100.engine.scheduler_reserve_full_isl);
  EXPECT_NEAR(h100.engine.kv.num_blocks, 28'000, 500);
  const ReplayConfig a100 = Resolve(R"({"gpu": "A100"})");
  EXPECT_EQ(a100.engine.max_num_seqs, 256);
  EXPECT_EQ(a100.engine.max_num_batched_tokens, 2048);
}

TEST(ReplayConfigTest, DefaultedLimitsRespectOneAnother) {
  const ReplayConfig few = Resolve(R"({"max_num_seqs": 2, "max_model_len": 100})");
  EXPECT_EQ(few.engine.max_num_batched_tokens, 200);
  EXPECT_EQ(Resolve(R"({"max_num_batched_tokens": 64})").engine.max_num_seqs, 64);
  EXPECT_EQ(Resolve(R"({"enable_chunked_prefill": false})").engine.max_num_batched_tokens, 131'072);
}

TEST(ReplayConfigTest, LargeModelsGetMoreGpus) {
  EXPECT_EQ(Resolve(R"({"model": "llama-3.1-70b"})").num_gpus, 4);
  EXPECT_EQ(Resolve(R"({"model": "llama-3.1-70b", "gpu": "h200"})").num_gpus, 2);
  EXPECT_NE(ErrorOf(R"({"model": "llama-3.1-70b", "tensor_parallel_size": 1})")
                .find("model: llama-3.1-70b on 1 x h100 leaves room for 0 tokens"),
            std::string::npos);
}

TEST(ReplayConfigTest, EveryKey) {
  const ReplayConfig config = Resolve(R"({
    "model": {"name": "tiny", "num_parameters": 1e9, "num_layers": 2, "hidden_size": 64,
              "num_heads": 4, "num_kv_heads": 2, "head_size": 16, "max_model_len": 2048,
              "num_embedding_parameters": 1e6, "bytes_per_parameter": 1, "bytes_per_kv_element": 1},
    "gpu": {"name": "small", "memory_gib": 24, "tflops": 100, "memory_bandwidth_gb_s": 900,
            "link_bandwidth_gb_s": 10},
    "tensor_parallel_size": 2, "gpu_memory_utilization": 0.5, "reserved_gib": 0,
    "num_blocks": 77, "block_size": 8, "max_num_seqs": 5, "max_num_batched_tokens": 50,
    "max_model_len": 400, "long_prefill_token_threshold": 20, "enable_chunked_prefill": true,
    "enable_prefix_caching": false, "scheduler_reserve_full_isl": false, "async_scheduling": false,
    "policy": "priority", "behavior": "vllm_0_20",
    "step_time": {"kind": "linear", "fixed_ms": 3, "per_request_us": 1, "per_prefill_token_us": 2,
                  "per_decode_token_us": 3, "per_context_token_ns": 4}})");
  EXPECT_EQ(config.model.name, "tiny");
  EXPECT_EQ(config.model.kv_bytes_per_token(), 2 * 2 * 2 * 16);
  EXPECT_EQ(config.gpu.name, "small");
  EXPECT_EQ(config.num_gpus, 2);
  EXPECT_EQ(config.engine.kv.num_blocks, 77U);
  EXPECT_EQ(config.engine.kv.block_size, 8);
  EXPECT_EQ(config.engine.max_num_seqs, 5);
  EXPECT_EQ(config.engine.max_num_batched_tokens, 50);
  EXPECT_EQ(config.engine.max_model_len, 400);
  EXPECT_EQ(config.engine.long_prefill_token_threshold, 20);
  EXPECT_FALSE(config.engine.kv.enable_prefix_caching);
  EXPECT_FALSE(config.engine.scheduler_reserve_full_isl);
  EXPECT_FALSE(config.engine.async_scheduling);
  EXPECT_EQ(config.engine.policy, SchedulingPolicy::kPriority);
  EXPECT_TRUE(config.engine.behavior.queues_impossible_requests);
  StepLoad load;
  load.num_requests = 1;
  EXPECT_DOUBLE_EQ(config.step_time->StepTime(load), 3e-3 + 1e-6);
}

TEST(ReplayConfigTest, RooflineParametersCanBeReplaced) {
  StepLoad load;
  load.num_requests = 1;
  load.num_tokens = 8192;
  const double before = Resolve("{}").step_time->StepTime(load);
  const double slower = Resolve(R"({"step_time": {"compute_efficiency": 0.3, "fixed_overhead_ms": 0,
                                "per_request_overhead_us": 0}})")
                            .step_time->StepTime(load);
  EXPECT_NEAR(slower, 2 * (before - 2e-3 - 5e-6), 1e-9);
}

TEST(ReplayConfigTest, MessagesNamePathValueAndWhatIsWanted) {
  EXPECT_EQ(ErrorOf(R"({"block_size": "16"})"),
            "block_size: \"16\", wanted an integer from 1 to 1048576");
  EXPECT_EQ(ErrorOf(R"({"num_blocks": 1})"),
            "num_blocks: 1, wanted an integer from 2 to 536870912");
  EXPECT_EQ(ErrorOf(R"({"num_blocks": 18446744073709551615})"),
            "num_blocks: 18446744073709551615, wanted an integer from 2 to 536870912");
  EXPECT_EQ(ErrorOf(R"({"num_blocks": 1e30})"),
            "num_blocks: 1e+30, wanted an integer from 2 to 536870912");
  EXPECT_EQ(ErrorOf(R"({"gpu_memory_utilization": 1.5})"),
            "gpu_memory_utilization: 1.5, wanted a number above 0 and up to 1");
  EXPECT_EQ(ErrorOf(R"({"async_scheduling": 1})"), "async_scheduling: 1, wanted true or false");
  EXPECT_EQ(ErrorOf(R"({"policy": "lifo"})"), "policy: \"lifo\", wanted one of fcfs, priority");
  EXPECT_EQ(ErrorOf(R"({"model": "gpt"})"),
            "model: \"gpt\", wanted one of llama-3.1-8b, llama-3.1-70b");
  EXPECT_EQ(ErrorOf(R"({"model": {"name": 3}})"), "model.name: 3, wanted a string");
  EXPECT_EQ(ErrorOf(R"({"model": 3})"), "model: 3, wanted an object");
  EXPECT_EQ(ErrorOf(R"({"gpu": {"tflops": -1}})"),
            "gpu.tflops: -1, wanted a number above 0 and up to 1000000");
  EXPECT_EQ(ErrorOf(R"({"step_time": {"kind": "linear", "fixd_ms": 3}})"),
            "step_time.fixd_ms: 3, an unknown key, wanted one of kind, fixed_ms, per_request_us, "
            "per_prefill_token_us, per_decode_token_us, per_context_token_ns");
  EXPECT_EQ(ErrorOf(R"({"step_time": {"kind": "linear"}})"),
            "step_time.fixed_ms: missing, wanted a number above 0");
  EXPECT_NE(ErrorOf(R"({"blocksize": 16})").find("blocksize: 16, an unknown key"),
            std::string::npos);
  EXPECT_EQ(ErrorOf("[]"), "the configuration: [], wanted an object");
  EXPECT_EQ(ErrorOf(R"({"block_size": 8, "block_size": 16})"), "block_size: twice, wanted it once");
  EXPECT_NE(ErrorOf("{\"block_size\": \n 8,}").find("line 2"), std::string::npos);
  EXPECT_NE(ErrorOf("").find("parse error"), std::string::npos);
  EXPECT_EQ(ErrorOf(R"({"max_num_batched_tokens": 10, "max_num_seqs": 20})"),
            "max_num_batched_tokens: 10, wanted at least max_num_seqs 20");
}

TEST(ReplayConfigTest, FlagsWin) {
  const absl::StatusOr<ReplaySettings> base = ParseReplaySettings(
      R"({"block_size": 32, "max_num_seqs": 7, "gpu": {"memory_gib": 24, "tflops": 100,
          "memory_bandwidth_gb_s": 900}})");
  ASSERT_TRUE(base.ok());
  ReplaySettings flags;
  flags.block_size = 64;
  flags.gpu = "h200";
  const absl::StatusOr<ReplayConfig> config = ResolveReplayConfig(Override(*base, flags));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->engine.kv.block_size, 64);
  EXPECT_EQ(config->engine.max_num_seqs, 7);
  EXPECT_EQ(config->gpu.name, "h200");
}

}  // namespace
}  // namespace tally
