// Every wrong command is answered by an error that names the field and the value, changes nothing,
// and the engine goes on.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/protocol/protocol_engine.h"

namespace tally {
namespace {

constexpr std::string_view kConfigure =
    R"({"op":"configure","config":{"block_size":4,"num_blocks":20,"max_num_seqs":4,"max_num_batched_tokens":16,)"
    R"("max_model_len":64,"num_speculative_tokens":2}})";

// Leads to a state with a running request whose step is not updated, and one that waits.
constexpr std::string_view kBefore[] = {
    kConfigure,
    R"({"op":"add","t":1,"id":"a","prompt":[1,2,3,4,5],"max_tokens":4,"eos":2})",
    R"({"op":"add","t":1,"id":"b","prompt":[30,2,3,4,5,6,7,8,9,10,11,12,13],"max_tokens":4,"priority":3})",
    R"({"op":"schedule","t":2})",
};

// What the engine has to be able to do afterwards, and what shows its state.
constexpr std::string_view kAfter[] = {
    R"({"op":"state"})",
    R"({"op":"metrics"})",
    R"({"op":"update","t":3,"sampled":{"a":[9]},"drafts":{"a":[7,8]}})",
    R"({"op":"schedule","t":4})",
    R"({"op":"state","t":4})",
    R"({"op":"update","t":5,"sampled":{"a":[7,8,3],"b":[5]}})",
    R"({"op":"metrics","t":6})",
};

std::vector<std::string> AnswerAll(ProtocolEngine& engine,
                                   std::span<const std::string_view> commands) {
  std::vector<std::string> answers;
  for (const std::string_view command : commands) answers.emplace_back(engine.Answer(command));
  return answers;
}

struct BadInput {
  const char* name;
  std::string command;
  const char* message;  // a part of it
};

void PrintTo(const BadInput& input, std::ostream* out) { *out << input.command.substr(0, 200); }

class BadInputTest : public testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, IsRefusedByNameAndChangesNothing) {
  ProtocolEngine untouched;
  for (const std::string& answer : AnswerAll(untouched, kBefore)) {
    ASSERT_EQ(answer.find("\"error\""), std::string::npos) << answer;
  }
  const std::vector<std::string> expected = AnswerAll(untouched, kAfter);
  for (const std::string& answer : expected)
    ASSERT_EQ(answer.find("\"error\""), std::string::npos) << answer;

  ProtocolEngine engine;
  AnswerAll(engine, kBefore);
  // Twice: a first refusal must not have made the second one right.
  for (int i = 0; i < 2; ++i) {
    const std::string answer(engine.Answer(GetParam().command));
    EXPECT_EQ(answer.rfind(R"({"error":"InvalidCommand","message":)", 0), 0U) << answer;
    EXPECT_NE(answer.find(GetParam().message), std::string::npos) << answer;
    EXPECT_LT(answer.size(), 600U) << "a message repeats too much";
  }
  EXPECT_EQ(AnswerAll(engine, kAfter), expected);
}

std::string Add(std::string_view fields) {
  return R"({"op":"add","t":3,"id":"c",)" + std::string(fields) + "}";
}

std::string Configure(std::string_view more) {
  return R"({"op":"configure","config":{"block_size":4,"num_blocks":20,"max_num_seqs":4,"max_model_len":64,)" +
         std::string(more) + "}}";
}

INSTANTIATE_TEST_SUITE_P(
    Lines, BadInputTest,
    testing::Values(
        BadInput{"Empty", "", "command"}, BadInput{"Spaces", "   ", "command"},
        BadInput{"NotJson", "hello", "hello"}, BadInput{"CutOff", R"({"op":"sta)", "command"},
        BadInput{"TwoValues", R"({"op":"state"}{"op":"state"})", "command"},
        BadInput{"Array", R"(["op","state"])", "an array, wanted an object"},
        BadInput{"Number", "17", "17, wanted an object"},
        BadInput{"Null", "null", "null, wanted an object"},
        BadInput{"InvalidUtf8", "{\"op\":\"state\xFF\"}", "command"},
        BadInput{"InvalidUtf8InId", "{\"op\":\"abort\",\"ids\":[\"\xC0\x80\"]}", "command"},
        BadInput{"NulByte", std::string("{\"op\":\"state\"\0}", 15), "command"},
        BadInput{"Deep", std::string(100000, '['), "command"},
        BadInput{"TooLong", "{\"op\":\"" + std::string(kMaxCommandBytes, 'x') + "\"}",
                 "bytes, wanted at most"},
        BadInput{"NoOp", R"({"t":1})", "op: missing"},
        BadInput{"OpNoString", R"({"op":3})", "op: not a string"},
        BadInput{"UnknownOp", R"({"op":"explode"})", "op: explode, wanted"},
        BadInput{"OpTwice", R"({"op":"state","op":"state"})", "state.op: given twice"},
        BadInput{"TimeBack", R"({"op":"state","t":1.5})",
                 "state.t: 1.5, wanted a number from 2 on"},
        BadInput{"TimeNegative", R"({"op":"schedule","t":-1})", "schedule.t: -1"},
        BadInput{"TimeHuge", R"({"op":"schedule","t":1e999})", "t: 1e999"},
        BadInput{"TimeText", R"({"op":"schedule","t":"now"})", R"(schedule.t: \"now\")"},
        BadInput{"UnknownKey", R"({"op":"schedule","t":3,"x":[1]})",
                 "schedule.x: an array, an unknown key"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Add, BadInputTest,
    testing::Values(
        BadInput{"NoId", R"({"op":"add","prompt":[1],"max_tokens":1})", "add.id: missing"},
        BadInput{"IdNumber", R"({"op":"add","id":5,"prompt":[1],"max_tokens":1})",
                 "add.id: 5, wanted a string"},
        BadInput{"IdEmpty", R"({"op":"add","id":"","prompt":[1],"max_tokens":1})", "add.id"},
        BadInput{"IdInUse", R"({"op":"add","id":"a","prompt":[1],"max_tokens":1})", "add.id: a"},
        BadInput{"NoPrompt", Add(R"("max_tokens":1)"), "add.prompt: missing"},
        BadInput{"PromptEmpty", Add(R"("prompt":[],"max_tokens":1)"), "add.prompt"},
        BadInput{"PromptText", Add(R"("prompt":"hi","max_tokens":1)"), R"(add.prompt: \"hi\")"},
        BadInput{"TokenNegative", Add(R"("prompt":[1,-2],"max_tokens":1)"), "add.prompt[1]: -2"},
        BadInput{"TokenLarge", Add(R"("prompt":[2147483648],"max_tokens":1)"),
                 "add.prompt[0]: 2147483648"},
        BadInput{"TokenHuge", Add(R"("prompt":[123456789012345678901],"max_tokens":1)"),
                 "123456789012345678901"},
        BadInput{"TokenNested", Add(R"("prompt":[[1]],"max_tokens":1)"), "add.prompt[0]: an array"},
        BadInput{"TokenFraction", Add(R"("prompt":[1.0],"max_tokens":1)"), "add.prompt[0]: 1.0"},
        BadInput{"NoMaxTokens", Add(R"("prompt":[1])"), "add.max_tokens: missing"},
        BadInput{"MaxTokensZero", Add(R"("prompt":[1],"max_tokens":0)"), "add.max_tokens: 0"},
        BadInput{"MaxTokensNegative", Add(R"("prompt":[1],"max_tokens":-3)"),
                 "add.max_tokens: -3, wanted an integer"},
        BadInput{"MaxTokensHuge", Add(R"("prompt":[1],"max_tokens":4294967297)"),
                 "add.max_tokens: 4294967297"},
        BadInput{"MinTokensNegative", Add(R"("prompt":[1],"max_tokens":3,"min_tokens":-1)"),
                 "add.min_tokens: -1"},
        BadInput{"MinTokensAboveMax", Add(R"("prompt":[1],"max_tokens":3,"min_tokens":4)"),
                 "add.min_tokens: 4"},
        BadInput{"EosNegative", Add(R"("prompt":[1],"max_tokens":3,"eos":-1)"), "add.eos: -1"},
        BadInput{"IgnoreEosNumber", Add(R"("prompt":[1],"max_tokens":3,"ignore_eos":1)"),
                 "add.ignore_eos: 1"},
        BadInput{"StopText", Add(R"("prompt":[1],"max_tokens":3,"stop_token_ids":["x"])"),
                 R"(add.stop_token_ids[0]: \"x\")"},
        BadInput{"PriorityHuge",
                 Add(R"("prompt":[1],"max_tokens":3,"priority":9223372036854775808)"),
                 "add.priority: 9223372036854775808"},
        BadInput{"ArrivalText", Add(R"("prompt":[1],"max_tokens":3,"arrival":"x")"), "add.arrival"},
        BadInput{"SaltNumber", Add(R"("prompt":[1],"max_tokens":3,"cache_salt":1)"),
                 "add.cache_salt: 1"},
        BadInput{"RepetitionNumber", Add(R"("prompt":[1],"max_tokens":3,"repetition":1)"),
                 "add.repetition: 1"},
        BadInput{"RepetitionKey", Add(R"("prompt":[1],"max_tokens":3,"repetition":{"count":1})"),
                 "repetition.count: 1"},
        BadInput{"RepetitionFraction",
                 Add(R"("prompt":[1],"max_tokens":3,"repetition":{"min_count":-1.5})"),
                 "repetition.min_count: -1.5"},
        BadInput{"LoraNegative", Add(R"("prompt":[1],"max_tokens":3,"lora":-1)"), "add.lora: -1"},
        BadInput{"EncoderInputNumber", Add(R"("prompt":[1],"max_tokens":3,"encoder_inputs":[7])"),
                 "add.encoder_inputs[0]: 7, wanted an object"},
        BadInput{"EncoderInputWithoutLength",
                 Add(R"("prompt":[1],"max_tokens":3,"encoder_inputs":[{"offset":0,"hash":"h"}])"),
                 "add.encoder_inputs[0].length: missing"},
        BadInput{
            "EncoderInputNegative",
            Add(R"("prompt":[1],"max_tokens":3,"encoder_inputs":[{"offset":-1,"length":1,"hash":"h"}])"),
            "add.encoder_inputs[0].offset: -1"},
        BadInput{"ResumableNumber", Add(R"("prompt":[1],"max_tokens":3,"resumable":1)"),
                 "add.resumable: 1"},
        BadInput{"KvNumber", Add(R"("prompt":[1],"max_tokens":3,"kv":5)"),
                 "add.kv: 5, wanted an object"},
        BadInput{"UnknownKey", Add(R"("prompt":[1],"max_tokens":3,"max_token":3)"),
                 "add.max_token: 3, an unknown key"},
        // Corrected behaviour refuses what could never run.
        BadInput{"TooLongEver",
                 Add(R"("prompt":[)" +
                     [] {
                       std::string p;
                       for (int i = 0; i < 70; ++i) p += (i ? ",1" : "1");
                       return p;
                     }() +
                     R"(],"max_tokens":3)"),
                 "add.prompt: 70"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Update, BadInputTest,
    testing::Values(
        BadInput{"NoSampled", R"({"op":"update","t":3})", "update.sampled: missing"},
        BadInput{"SampledArray", R"({"op":"update","t":3,"sampled":[1]})",
                 "update.sampled: an array"},
        BadInput{"UnknownRequest", R"({"op":"update","t":3,"sampled":{"a":[1],"zz":[1]}})",
                 "update.sampled.zz"},
        BadInput{"UnknownRequestWithoutTokens", R"({"op":"update","t":3,"sampled":{"zz":[]}})",
                 "update.sampled.zz"},
        BadInput{"RowText", R"({"op":"update","t":3,"sampled":{"a":"x"}})",
                 R"(update.sampled.a: \"x\")"},
        BadInput{"RowTwice", R"({"op":"update","t":3,"sampled":{"a":[1],"a":[1]}})",
                 "update.sampled.a: given twice"},
        BadInput{"TokenNegative", R"({"op":"update","t":3,"sampled":{"a":[-1]}})",
                 "update.sampled.a[0]: -1"},
        BadInput{"TooManyTokens", R"({"op":"update","t":3,"sampled":{"a":[1,2]}})",
                 "update.sampled.a: 2 tokens, wanted at most 1"},
        BadInput{"TokensInPrefill", R"({"op":"update","t":3,"sampled":{"a":[1],"b":[1]}})",
                 "update.sampled.b: 1 tokens, wanted at most 0 since its prefill is not complete"},
        BadInput{"DraftsArray", R"({"op":"update","t":3,"sampled":{"a":[1]},"drafts":[]})",
                 "update.drafts: an array"},
        BadInput{"DraftNegative",
                 R"({"op":"update","t":3,"sampled":{"a":[1]},"drafts":{"a":[-1]}})",
                 "update.drafts.a[0]: -1"},
        BadInput{"TooManyDrafts",
                 R"({"op":"update","t":3,"sampled":{"a":[1]},"drafts":{"a":[1,2,3]}})",
                 "update.drafts.a: 3 tokens, wanted at most num_speculative_tokens 2"},
        BadInput{"DraftsForNobody",
                 R"({"op":"update","t":3,"sampled":{"a":[1]},"drafts":{"zz":[1]}})",
                 "update.drafts.zz"},
        BadInput{"Recving", R"({"op":"update","t":3,"sampled":{"a":[1]},"finished_recving":["a"]})",
                 "update.finished_recving"},
        BadInput{"Sending", R"({"op":"update","t":3,"sampled":{"a":[1]},"finished_sending":["a"]})",
                 "update.finished_sending"},
        BadInput{"Invalid", R"({"op":"update","t":3,"sampled":{"a":[1]},"invalid_blocks":[1]})",
                 "update.invalid_blocks"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Others, BadInputTest,
    testing::Values(BadInput{"AbortNothing", R"({"op":"abort"})", "abort.ids: missing"},
                    BadInput{"AbortText", R"({"op":"abort","ids":"a"})",
                             R"(abort.ids: \"a\", wanted an array)"},
                    BadInput{"AbortNumber", R"({"op":"abort","ids":["a",7]})", "abort.ids[1]: 7"},
                    BadInput{"AbortTimeBack", R"({"op":"abort","ids":["a"],"t":0})", "abort.t: 0"},
                    BadInput{"ResetNumber", R"({"op":"reset_prefix_cache","running":1})",
                             "reset_prefix_cache.running: 1"},
                    BadInput{"PauseNothing", R"({"op":"pause"})", "pause.state: missing"},
                    BadInput{"PauseUnknown", R"({"op":"pause","state":"half"})",
                             "pause.state: half"},
                    BadInput{"StateKey", R"({"op":"state","of":"a"})", "state.of"},
                    BadInput{"MetricsKey", R"({"op":"metrics","of":"a"})", "metrics.of"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Configure, BadInputTest,
    testing::Values(
        BadInput{"Nothing", R"({"op":"configure"})", "configure.config: missing"},
        BadInput{"Text", R"({"op":"configure","config":"x"})", "configure.config"},
        BadInput{"MissingKey", Configure(R"("policy":"fcfs")"),
                 "config.max_num_batched_tokens: missing"},
        BadInput{"UnknownKey", Configure(R"("max_num_batched_tokens":16,"speed":3)"),
                 "config.speed: 3, an unknown key"},
        BadInput{"Policy", Configure(R"("max_num_batched_tokens":16,"policy":"lifo")"),
                 "config.policy: lifo"},
        BadInput{"Zero", Configure(R"("max_num_batched_tokens":0)"),
                 "config.max_num_batched_tokens: 0"},
        BadInput{"Huge", Configure(R"("max_num_batched_tokens":99999999999)"),
                 "config.max_num_batched_tokens: 99999999999"},
        BadInput{"BelowSequences", Configure(R"("max_num_batched_tokens":3)"),
                 "config.max_num_batched_tokens: 3"},
        BadInput{"ConnectorType",
                 Configure(R"("max_num_batched_tokens":16,"connector":{"type":"lmcache"})"),
                 "config.connector.type: lmcache, wanted scripted, nixl, offloading or multi"},
        BadInput{"ConnectorWithoutType", Configure(R"("max_num_batched_tokens":16,"connector":{})"),
                 "config.connector.type: missing"},
        BadInput{
            "ConnectorPolicy",
            Configure(
                R"("max_num_batched_tokens":16,"connector":{"type":"nixl","load_failure_policy":"hope"})"),
            "config.connector.load_failure_policy: hope"},
        BadInput{
            "ConnectorBlockSize",
            Configure(
                R"("max_num_batched_tokens":16,"connector":{"type":"offloading","num_cpu_blocks":4,"block_size":6})"),
            "connector.block_size: 6, wanted a multiple of the GPU block size 4"},
        BadInput{
            "ConnectorChildType",
            Configure(
                R"("max_num_batched_tokens":16,"connector":{"type":"multi","connectors":[{"type":"multi"}]})"),
            "config.connector.connectors[0].type: multi"},
        BadInput{
            "ConnectorChildNumber",
            Configure(
                R"("max_num_batched_tokens":16,"connector":{"type":"multi","connectors":[3]})"),
            "config.connector.connectors[0]: 3"},
        BadInput{
            "ConnectorWithGroups",
            Configure(
                R"("max_num_batched_tokens":16,"groups":[{"block_size":4},{"type":"sliding_window","window":4,"block_size":4}],"connector":{"type":"offloading","num_cpu_blocks":4,"block_size":4})"),
            "groups: 2, wanted one with an offloading connector"},
        BadInput{"KvEvents", Configure(R"("max_num_batched_tokens":16,"kv_events":1)"),
                 "config.kv_events: 1"},
        BadInput{"Loras", Configure(R"("max_num_batched_tokens":16,"max_loras":-2)"),
                 "config.max_loras: -2"},
        BadInput{"Encoder", Configure(R"("max_num_batched_tokens":16,"encoder_budget":-8)"),
                 "config.encoder_budget: -8"},
        BadInput{
            "GroupType",
            Configure(R"("max_num_batched_tokens":16,"groups":[{"type":"sparse","block_size":4}])"),
            "config.groups[0].type: sparse"},
        BadInput{
            "MambaWithoutMode",
            Configure(R"("max_num_batched_tokens":16,"groups":[{"type":"mamba","block_size":4}])"),
            "config.groups[0].mode: missing"},
        BadInput{
            "MambaMode",
            Configure(
                R"("max_num_batched_tokens":16,"groups":[{"type":"mamba","mode":"some","block_size":4}])"),
            "config.groups[0].mode: some"},
        BadInput{"GroupNumber", Configure(R"("max_num_batched_tokens":16,"groups":[4])"),
                 "config.groups[0]: 4"},
        BadInput{
            "GroupWindow",
            Configure(
                R"("max_num_batched_tokens":16,"groups":[{"type":"sliding_window","block_size":4}])"),
            "config.groups[0].window: missing"},
        BadInput{
            "GroupBlockSize",
            Configure(R"("max_num_batched_tokens":16,"groups":[{"type":"full","block_size":6}])"),
            "config.groups[0].block_size: 6"},
        BadInput{"ManyGroups",
                 Configure(R"("max_num_batched_tokens":16,"groups":[)" +
                           [] {
                             std::string g;
                             for (int i = 0; i < 17; ++i)
                               g += std::string(i ? "," : "") + R"({"block_size":4})";
                             return g;
                           }() +
                           "]"),
                 "config.groups"},
        BadInput{
            "ManyBlocks",
            R"({"op":"configure","config":{"block_size":4,"num_blocks":4294967296,"max_num_seqs":4,)"
            R"("max_num_batched_tokens":16,"max_model_len":64}})",
            "config.num_blocks: 4294967296"}),
    [](const auto& test) { return test.param.name; });

// With a connector, reports of its workers and parameters of clients are looked at.
TEST(BadInputConnectorTest, WrongReportsAndParametersAreRefusedByName) {
  constexpr std::string_view kStart[] = {
      R"({"op":"configure","config":{"block_size":4,"num_blocks":20,"max_num_seqs":4,"max_model_len":64,)"
      R"("max_num_batched_tokens":16,"connector":{"type":"multi","connectors":[{"type":"nixl"},{"type":"scripted"}]}}})",
      R"({"op":"add","t":1,"id":"a","prompt":[1,2,3,4,5],"max_tokens":4})",
      R"({"op":"schedule","t":2})",
  };
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"op":"update","sampled":{"a":[1]},"invalid_blocks":[20]})",
       "update.invalid_blocks[0]: 20, wanted a block below num_blocks 20"},
      {R"({"op":"update","sampled":{"a":[1]},"invalid_blocks":[-1]})",
       "update.invalid_blocks[0]: -1"},
      {R"({"op":"update","sampled":{"a":[1]},"finished_recving":"a"})",
       R"(update.finished_recving: \"a\", wanted an array)"},
      {R"({"op":"update","sampled":{"a":[1]},"finished_sending":[7]})",
       "update.finished_sending[0]: 7"},
      {R"({"op":"add","id":"b","prompt":[1],"max_tokens":1,"kv":{"do_remote_prefill":true,"remote_block_ids":[["x"]]}})",
       "add.kv.remote_block_ids"},
      {R"({"op":"add","id":"b","prompt":[1],"max_tokens":1,"kv":{"do_remote_prefill":true,"remote_block_ids":[[3],[4]]}})",
       "add.kv.remote_block_ids: [[3],[4]], wanted 1 lists of block ids"},
      {R"({"op":"add","id":"b","prompt":[1],"max_tokens":1,"kv":{"scripted1":{"held":-1}}})",
       "add.kv.scripted1.held: -1, wanted an integer from 0"},
      {R"({"op":"add","id":"b","prompt":[1],"max_tokens":1,"kv":{"scripted1":{"async":1}}})",
       "add.kv.scripted1.async: 1"},
  };
  constexpr std::string_view kRest[] = {R"({"op":"state"})",
                                        R"({"op":"update","t":3,"sampled":{"a":[9]}})",
                                        R"({"op":"schedule","t":4})"};
  ProtocolEngine untouched;
  AnswerAll(untouched, kStart);
  const std::vector<std::string> expected = AnswerAll(untouched, kRest);
  for (const auto& [command, message] : cases) {
    ProtocolEngine engine;
    AnswerAll(engine, kStart);
    const std::string answer(engine.Answer(command));
    EXPECT_NE(answer.find(message), std::string::npos) << answer;
    EXPECT_EQ(answer.rfind(R"({"error":"InvalidCommand")", 0), 0U) << answer;
    EXPECT_EQ(AnswerAll(engine, kRest), expected) << command;
  }
}

TEST(BadInputOrderTest, AnUpdateWithoutAScheduleIsRefused) {
  ProtocolEngine engine;
  engine.Answer(kConfigure);
  const std::string answer(engine.Answer(R"({"op":"update","sampled":{}})"));
  EXPECT_NE(answer.find("op: update, wanted a schedule before it"), std::string::npos) << answer;
}

TEST(BadInputOrderTest, CommandsBeforeConfigureAreRefused) {
  ProtocolEngine engine;
  for (const std::string_view op :
       {"add", "schedule", "update", "abort", "reset_prefix_cache", "pause", "state", "metrics"}) {
    const std::string answer(engine.Answer(R"({"op":")" + std::string(op) + "\"}"));
    EXPECT_NE(answer.find("wanted configure first"), std::string::npos) << answer;
  }
  EXPECT_EQ(engine.scheduler(), nullptr);
}

TEST(BadInputOrderTest, TimeDoesNotMoveWithARefusedCommand) {
  ProtocolEngine engine;
  engine.Answer(kConfigure);
  engine.Answer(R"({"op":"state","t":5})");
  EXPECT_NE(engine.Answer(R"({"op":"state","t":9,"x":1})").find("error"), std::string_view::npos);
  EXPECT_EQ(engine.Answer(R"({"op":"state","t":6})").find("error"), std::string_view::npos);
}

}  // namespace
}  // namespace tally
