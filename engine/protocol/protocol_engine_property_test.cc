// Random input, garbage and nearly right commands alike: the engine always answers with one JSON
// object, what it refuses changes nothing, and its structures stay sound.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/protocol/protocol_engine.h"
#include "rapidcheck/gtest.h"
#include "simdjson.h"

namespace tally {
namespace {

rc::Gen<std::string> AnyId() {
  return rc::gen::map(rc::gen::inRange(0, 5), [](int i) { return "r" + std::to_string(i); });
}

rc::Gen<std::string> AnyNumber() {
  return rc::gen::oneOf(
      rc::gen::map(rc::gen::inRange(0, 12), [](int i) { return std::to_string(i); }),
      rc::gen::element<std::string>("-1", "1.5", "1e400", "99999999999999999999", "2147483648",
                                    "null", "\"x\"", "[]"));
}

rc::Gen<std::string> AnyTokens() {
  return rc::gen::map(  // At most as long as a sequence may be.
      rc::gen::resize(9, rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 3))),
      [](const std::vector<int>& tokens) {
        std::string text = "[";
        for (const int token : tokens) text += (text.size() > 1 ? "," : "") + std::to_string(token);
        return text + "]";
      });
}

// A command that is right often enough to get somewhere.
rc::Gen<std::string> NearlyRight() {
  const auto op = *rc::gen::weightedElement<std::string>({{4, "add"},
                                                          {6, "schedule"},
                                                          {6, "update"},
                                                          {1, "abort"},
                                                          {1, "reset"},
                                                          {1, "pause"},
                                                          {1, "configure"},
                                                          {1, "odd"}});
  if (op == "add") {
    return rc::gen::map(
        rc::gen::tuple(AnyId(), AnyTokens(), AnyNumber(), rc::gen::inRange(0, 8)),
        [](const auto& parts) {
          const auto& [id, tokens, number, field] = parts;
          static constexpr const char* kFields[] = {"priority", "min_tokens", "eos",        "lora",
                                                    "arrival",  "ignore_eos", "cache_salt", "kv"};
          const std::string more =
              field == 0 ? "" : ",\"" + std::string(kFields[field]) + "\":" + number;
          return R"({"op":"add","id":")" + id + R"(","prompt":)" + tokens + R"(,"max_tokens":)" +
                 (field % 2 == 0 ? number : "5") + more + "}";
        });
  }
  if (op == "update") {
    return rc::gen::map(
        rc::gen::tuple(AnyId(), AnyTokens(), AnyId(), AnyTokens(), rc::gen::inRange(0, 4)),
        [](const auto& parts) {
          const auto& [a, row, b, other, kind] = parts;
          std::string text = R"({"op":"update","sampled":{)";
          if (kind > 0) text += "\"" + a + "\":[1]";
          if (kind > 1) text += ",\"" + b + "\":" + (kind == 2 ? "[2]" : row);
          return text + (kind == 3 ? R"(},"drafts":{")" + a + "\":" + other + "}}" : "}}");
        });
  }
  if (op == "abort") {
    return rc::gen::map(
        AnyId(), [](const std::string& id) { return R"({"op":"abort","ids":[")" + id + "\"]}"; });
  }
  if (op == "configure") {
    return rc::gen::map(
        rc::gen::tuple(AnyNumber(), AnyNumber(), rc::gen::inRange(1, 9)), [](const auto& parts) {
          const auto& [blocks, seqs, size] = parts;
          return R"({"op":"configure","config":{"block_size":)" + std::to_string(size) +
                 R"(,"num_blocks":)" + blocks + R"(,"max_num_seqs":)" + seqs +
                 R"(,"max_num_batched_tokens":11,"max_model_len":20}})";
        });
  }
  if (op == "reset") {
    return rc::gen::element<std::string>(R"({"op":"reset_prefix_cache","running":true})",
                                         R"({"op":"reset_prefix_cache"})");
  }
  if (op == "pause") {
    return rc::gen::element<std::string>(R"({"op":"pause","state":"paused_new"})",
                                         R"({"op":"pause","state":"unpaused"})",
                                         R"({"op":"pause","state":"paused_all"})");
  }
  if (op == "odd") {
    return rc::gen::map(
        rc::gen::tuple(rc::gen::string<std::string>(), AnyNumber()), [](const auto& parts) {
          return "{\"op\":\"state\",\"" + std::get<0>(parts) + "\":" + std::get<1>(parts) + "}";
        });
  }
  return rc::gen::just<std::string>(R"({"op":"schedule"})");
}

constexpr const char* kConfigures[] = {
    R"({"op":"configure","config":{"block_size":2,"num_blocks":7,"max_num_seqs":3,"max_num_batched_tokens":5,"max_model_len":12}})",
    R"({"op":"configure","config":{"block_size":2,"num_blocks":6,"max_num_seqs":3,"max_num_batched_tokens":5,"max_model_len":10,)"
    R"("async_scheduling":true,"policy":"priority","num_speculative_tokens":2}})",
    R"({"op":"configure","config":{"block_size":2,"num_blocks":12,"max_num_seqs":3,"max_num_batched_tokens":6,"max_model_len":10,)"
    R"("num_speculative_tokens":2,"use_eagle":true,"groups":[{"type":"full","block_size":2},)"
    R"({"type":"sliding_window","block_size":2,"window":3}]}})",
};

RC_GTEST_PROP(ProtocolEngineProperty, GarbageIsAnsweredByAnError,
              (const std::vector<std::string>& lines)) {
  ProtocolEngine engine;
  engine.Answer(kConfigures[0]);
  const std::string state(engine.Answer(R"({"op":"state"})"));
  simdjson::dom::parser parser;
  for (const std::string& line : lines) {
    const std::string answer(engine.Answer(line));
    RC_ASSERT(parser.parse(answer)["error"].error() == simdjson::SUCCESS);
    RC_ASSERT(std::string(engine.Answer(R"({"op":"state"})")) == state);
  }
}

RC_GTEST_PROP(ProtocolEngineProperty, NearlyRightCommandsKeepTheEngineSound, ()) {
  EngineConfig defaults;
  defaults.behavior = *rc::gen::arbitrary<bool>() ? Behavior::Corrected() : Behavior::Vllm0_20();
  ProtocolEngine engine(defaults);
  engine.Answer(kConfigures[*rc::gen::inRange(0, 3)]);
  const std::size_t length = *rc::gen::inRange<std::size_t>(1, 80);
  simdjson::dom::parser parser;
  for (std::size_t i = 0; i < length; ++i) {
    const std::string command = *NearlyRight();
    const std::string state(engine.Answer(R"({"op":"state"})"));
    const std::string metrics(engine.Answer(R"({"op":"metrics"})"));
    const std::string answer(engine.Answer(command));
    simdjson::dom::element parsed;
    RC_ASSERT(parser.parse(answer).get(parsed) == simdjson::SUCCESS);
    std::string_view kind;
    if (parsed["error"].get(kind) == simdjson::SUCCESS) {
      // The reference's own fault: the run ends here.
      if (kind != "InvalidCommand") return;
      RC_ASSERT(std::string(engine.Answer(R"({"op":"state"})")) == state);
      RC_ASSERT(std::string(engine.Answer(R"({"op":"metrics"})")) == metrics);
    }
    engine.scheduler()->CheckInvariants();
  }
}

}  // namespace
}  // namespace tally
