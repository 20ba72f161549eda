#include "engine/workload/step_time_model.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally {
namespace {

RooflineParameters Llama8bOnH100() {
  return {.model = *ModelByName("llama-3.1-8b"), .gpu = *GpuByName("h100")};
}

StepLoad Load(std::vector<ScheduledRequest> requests) { return StepLoad::Of(requests); }

TEST(StepTimeModelTest, LoadOfAStep) {
  const StepLoad load = Load({{.num_tokens = 3, .num_computed_tokens = 10, .samples = false},
                              {.num_tokens = 1, .num_computed_tokens = 99, .samples = true}});
  EXPECT_EQ(load.num_requests, 2);
  EXPECT_EQ(load.num_samples, 1);
  EXPECT_EQ(load.num_tokens, 4);
  EXPECT_EQ(load.num_prefill_tokens, 3);
  EXPECT_EQ(load.num_decode_tokens, 1);
  EXPECT_EQ(load.num_context_tokens, 13 + 100);
  EXPECT_EQ(load.num_attention_pairs, 11 + 12 + 13 + 100);
}

TEST(StepTimeModelTest, WeightsOfTheModels) {
  // The embeddings are 6.5 % of the small model; 128 KiB and 320 KiB of KV a token.
  EXPECT_EQ(ModelByName("Llama-3.1-8B")->kv_bytes_per_token(), 131'072);
  EXPECT_EQ(ModelByName("llama-3.1-70b")->kv_bytes_per_token(), 327'680);
  EXPECT_NEAR(ModelByName("llama-3.1-8b")->weight_bytes(), 16.06e9, 0.01e9);
  EXPECT_FALSE(ModelByName("llama").has_value());
  EXPECT_TRUE(GpuByName("H200").has_value());
  EXPECT_FALSE(GpuByName("b300").has_value());
}

TEST(StepTimeModelTest, OneDecodeIsBoundByReadingTheWeights) {
  const RooflineModel model(Llama8bOnH100());
  const StepLoad load = Load({{.num_tokens = 1, .num_computed_tokens = 99, .samples = true}});
  EXPECT_GT(model.Memory(load), model.Compute(load));
  EXPECT_NEAR(model.Memory(load), (16'060'522'496.0 + 131'072.0 * 101) / (3.35e12 * 0.8), 1e-12);
  EXPECT_DOUBLE_EQ(model.StepTime(load), model.Overhead(load) + model.Memory(load));
}

TEST(StepTimeModelTest, LongPrefillIsBoundByCompute) {
  const RooflineModel model(Llama8bOnH100());
  const StepLoad load = Load({{.num_tokens = 8192, .samples = true}});
  EXPECT_GT(model.Compute(load), model.Memory(load));
  const double pairs = 8192.0 * 8193 / 2;
  const double flops = 2 * (8'030'261'248.0 - 2 * 525'336'576.0) * 8192 + 2 * 525'336'576.0 +
                       4.0 * 32 * 32 * 128 * pairs;
  EXPECT_NEAR(model.Compute(load), flops / (989.4e12 * 0.6), 1e-9);
}

TEST(StepTimeModelTest, MoreGpusAreFasterButTalk) {
  RooflineParameters parameters = Llama8bOnH100();
  const StepLoad load = Load({{.num_tokens = 8192, .samples = true}});
  const RooflineModel one(parameters);
  parameters.num_gpus = 4;
  const RooflineModel four(parameters);
  EXPECT_EQ(one.Communication(load), 0);
  EXPECT_DOUBLE_EQ(four.Compute(load) * 4, one.Compute(load));
  const double all_reduce = 10e-6 + 2 * 0.75 * 2 * 4096 * 8192 / 450e9;
  EXPECT_NEAR(four.Communication(load), 64 * all_reduce, 1e-9);
}

TEST(StepTimeModelTest, LinearModelAddsItsParts) {
  const LinearModel model({.fixed = 1,
                           .per_request = 10,
                           .per_prefill_token = 100,
                           .per_decode_token = 1'000,
                           .per_context_token = 10'000});
  EXPECT_EQ(model.StepTime(Load({{.num_tokens = 3, .num_computed_tokens = 2}, {.num_tokens = 1}})),
            1 + 20 + 300 + 1'000 + 60'000);
}

TEST(StepTimeModelTest, KvCapacity) {
  const ModelSpec model = *ModelByName("llama-3.1-8b");
  const GpuSpec gpu = *GpuByName("h100");
  const double one = KvCapacityTokens(model, gpu, 1, 0.9, 0);
  EXPECT_NEAR(one, (gpu.memory_bytes * 0.9 - model.weight_bytes()) / 131'072, 1);
  EXPECT_GT(KvCapacityTokens(model, gpu, 2, 0.9, 0), 2 * one) << "the weights are shared";
  EXPECT_LT(KvCapacityTokens(*ModelByName("llama-3.1-70b"), gpu, 1, 0.9, 0), 0);
}

}  // namespace
}  // namespace tally
