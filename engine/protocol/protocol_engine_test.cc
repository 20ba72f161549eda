#include "engine/protocol/protocol_engine.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tally {
namespace {

class ProtocolEngineTest : public testing::Test {
 protected:
  // Configures an engine of 9 usable blocks of 4 tokens; `more` are further keys, each with a comma
  // before it.
  void Configure(std::string_view more = "") {
    const std::string answer = Ask(
        R"({"op":"configure","config":{"block_size":4,"num_blocks":10,"max_num_seqs":4,"max_num_batched_tokens":16,)"
        R"("max_model_len":36)" +
        std::string(more) + "}}");
    ASSERT_EQ(answer, R"({"engine":"tally 0.1"})");
  }
  std::string Ask(std::string_view command) { return std::string(engine_.Answer(command)); }
  bool Holds(const std::string& answer, std::string_view part) {
    return answer.find(part) != std::string::npos;
  }

  static EngineConfig Defaults() {
    EngineConfig config;
    config.behavior = Behavior::Vllm0_20();
    return config;
  }

  ProtocolEngine engine_{Defaults()};
};

TEST_F(ProtocolEngineTest, AnswersAStepInTheFormat) {
  Configure();
  EXPECT_EQ(Ask(R"({"op":"add","t":1,"id":"r0","prompt":[5,6,7,8,9],"max_tokens":2})"), "{}");
  EXPECT_EQ(
      Ask(R"({"op":"schedule","t":2})"),
      R"({"new":[["r0",[[1,2]],0]],"cached":[],"tokens":[["r0",5]],"preempted":[],"finished":[],)"
      R"("common_prefix":[2],"running":["r0"],"waiting":[],"skipped":[],"free_blocks":7})");
  EXPECT_EQ(
      Ask(R"({"op":"update","t":2.5,"sampled":{"r0":[3]}})"),
      R"({"outputs":[{"id":"r0","tokens":[3],"prefill":{"num_prompt_tokens":5,"num_computed_tokens":5,)"
      R"("num_cached_tokens":0,"num_local_cached_tokens":0,"num_external_cached_tokens":0},)"
      R"("events":[["queued",1],["scheduled",2]]}],"stats":{"running":1,"waiting":0,"skipped":0,)"
      R"("kv_usage":0.2222222222222222,"prefix_cache":{"reset":0,"requests":1,"queries":5,"hits":0,)"
      R"("preempted_requests":0,"preempted_queries":0,"preempted_hits":0}},"free_blocks":7})");
  EXPECT_TRUE(Holds(Ask(R"({"op":"schedule","t":3})"), R"("cached":[["r0",null,5,1,false]])"));
  const std::string last = Ask(R"({"op":"update","t":4,"sampled":{"r0":[3]}})");
  EXPECT_TRUE(Holds(last, R"("outputs":[{"id":"r0","tokens":[3],"finish":"length"}])")) << last;
  EXPECT_TRUE(Holds(Ask(R"({"op":"schedule","t":5})"), R"("finished":["r0"])"));
}

TEST_F(ProtocolEngineTest, ConfigureStartsAfresh) {
  Configure();
  Ask(R"({"op":"add","t":7,"id":"r0","prompt":[5],"max_tokens":2})");
  Configure();
  EXPECT_EQ(Ask(R"({"op":"state","t":1})"), R"({"requests":{},"unfinished":0,"free_blocks":9})");
  EXPECT_EQ(Ask(R"({"op":"metrics"})"),
            R"({"metrics":{"vllm:engine_sleep_state{sleep_state=\"awake\"}":1}})");
}

TEST_F(ProtocolEngineTest, UpdatesApplyToTheOldestOfSeveralSchedules) {
  Configure(R"(,"async_scheduling":true)");
  Ask(R"({"op":"add","t":1,"id":"r0","prompt":[5,6],"max_tokens":9})");
  Ask(R"({"op":"schedule","t":2})");
  Ask(R"({"op":"add","t":2,"id":"r1","prompt":[5,6],"max_tokens":9})");
  Ask(R"({"op":"schedule","t":3})");
  // The first step did not schedule r1.
  EXPECT_TRUE(
      Holds(Ask(R"({"op":"update","t":4,"sampled":{"r0":[3],"r1":[3]}})"), "update.sampled.r1"));
  EXPECT_TRUE(
      Holds(Ask(R"({"op":"update","t":4,"sampled":{"r0":[3]}})"), R"("id":"r0","tokens":[3])"));
  const std::string second = Ask(R"({"op":"update","t":4,"sampled":{"r1":[4],"r0":[5]}})");
  EXPECT_TRUE(Holds(second, R"("outputs":[{"id":"r0","tokens":[5]},{"id":"r1","tokens":[4])"))
      << second;
}

TEST_F(ProtocolEngineTest, DraftsAreScheduledAndCounted) {
  Configure(R"(,"num_speculative_tokens":2)");
  Ask(R"({"op":"add","t":1,"id":"r0","prompt":[5,6],"max_tokens":9})");
  Ask(R"({"op":"schedule","t":2})");
  Ask(R"({"op":"update","t":3,"sampled":{"r0":[3]},"drafts":{"r0":[7,8]}})");
  const std::string plan = Ask(R"({"op":"schedule","t":4})");
  EXPECT_TRUE(Holds(plan, R"("tokens":[["r0",3]],"spec":[["r0",[7,8]]])")) << plan;
  const std::string result = Ask(R"({"op":"update","t":5,"sampled":{"r0":[7,1]}})");
  EXPECT_TRUE(Holds(result, R"("spec_decoding":{"drafts":1,"draft_tokens":2,"accepted_tokens":1,)"
                            R"("accepted_per_position":[1,0]})"))
      << result;
  const std::string metrics = Ask(R"({"op":"metrics"})");
  EXPECT_TRUE(Holds(metrics, R"("vllm:spec_decode_num_draft_tokens_total":2,)")) << metrics;
  EXPECT_TRUE(
      Holds(metrics, R"("vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"}":1,)"))
      << metrics;
}

TEST_F(ProtocolEngineTest, DraftsOfARequestThatEndedMeanNothing) {
  Configure(R"(,"num_speculative_tokens":2)");
  Ask(R"({"op":"add","t":1,"id":"r0","prompt":[5,6],"max_tokens":1})");
  Ask(R"({"op":"schedule","t":2})");
  EXPECT_TRUE(Holds(Ask(R"({"op":"update","t":3,"sampled":{"r0":[3]},"drafts":{"r0":[7,8]}})"),
                    R"("finish":"length")"));
}

TEST_F(ProtocolEngineTest, ARowOfAnAbortedRequestIsIgnored) {
  Configure();
  Ask(R"({"op":"add","t":1,"id":"r0","prompt":[5,6],"max_tokens":9})");
  Ask(R"({"op":"schedule","t":2})");
  EXPECT_EQ(Ask(R"({"op":"abort","t":2,"ids":["zz","r0","r0"]})"), R"({"aborted":["r0"]})");
  EXPECT_TRUE(Holds(Ask(R"({"op":"update","t":3,"sampled":{"r0":[3]}})"), R"("outputs":[])"));
  // The front end has forgotten it: no token and no request is counted.
  const std::string metrics = Ask(R"({"op":"metrics"})");
  EXPECT_FALSE(Holds(metrics, "generation_tokens")) << metrics;
  EXPECT_FALSE(Holds(metrics, "request_success")) << metrics;
}

TEST_F(ProtocolEngineTest, AnIdMayBeUsedAgainAfterItsEnd) {
  Configure();
  Ask(R"({"op":"add","t":1,"id":"r0","prompt":[5,6],"max_tokens":9})");
  Ask(R"({"op":"abort","t":2,"ids":["r0"]})");
  EXPECT_EQ(Ask(R"({"op":"add","t":3,"id":"r0","prompt":[5,6],"max_tokens":9})"), "{}");
}

TEST_F(ProtocolEngineTest, PauseHoldsRequestsBack) {
  Configure();
  Ask(R"({"op":"add","t":1,"id":"r0","prompt":[5,6],"max_tokens":9})");
  EXPECT_EQ(Ask(R"({"op":"pause","state":"paused_new"})"), "{}");
  EXPECT_TRUE(Holds(Ask(R"({"op":"schedule","t":2})"), R"("tokens":[])"));
  EXPECT_EQ(Ask(R"({"op":"pause","state":"unpaused"})"), "{}");
  EXPECT_TRUE(Holds(Ask(R"({"op":"schedule","t":3})"), R"("tokens":[["r0",2]])"));
}

TEST_F(ProtocolEngineTest, ResetAnswersWhetherTheCacheWasEmptied) {
  Configure();
  EXPECT_EQ(Ask(R"({"op":"reset_prefix_cache","t":1})"), R"({"ok":true})");
  Ask(R"({"op":"add","t":1,"id":"r0","prompt":[5,6],"max_tokens":9})");
  Ask(R"({"op":"schedule","t":2})");
  EXPECT_EQ(Ask(R"({"op":"reset_prefix_cache","t":3,"running":false})"), R"({"ok":false})");
  EXPECT_EQ(Ask(R"({"op":"reset_prefix_cache","t":3,"running":true})"), R"({"ok":true})");
}

TEST_F(ProtocolEngineTest, TheHashAlgorithmDoesNotChangeDecisions) {
  EngineConfig config;
  config.kv.hash_algorithm = HashAlgorithm::kSha256Cbor;
  ProtocolEngine other(config);
  ProtocolEngine engine;
  for (
      const std::string_view command :
      {R"({"op":"configure","config":{"block_size":4,"num_blocks":10,"max_num_seqs":4,"max_num_batched_tokens":16,"max_model_len":36}})",
       R"({"op":"add","t":1,"id":"r0","prompt":[5,6,7,8,9],"max_tokens":2})",
       R"({"op":"schedule","t":2})", R"({"op":"update","t":2,"sampled":{"r0":[1]}})",
       R"({"op":"add","t":2,"id":"r1","prompt":[5,6,7,8,9],"max_tokens":2})",
       R"({"op":"schedule","t":3})"}) {
    EXPECT_EQ(std::string(other.Answer(command)), std::string(engine.Answer(command)));
  }
}

}  // namespace
}  // namespace tally
