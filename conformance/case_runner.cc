#include "conformance/case_runner.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "prefill-cases/1";

std::string Shortened(const json& value) {
  std::string text = value.dump();
  if (text.size() > 200) text = text.substr(0, 200) + "...";
  return text;
}

std::optional<std::string> Differ(const std::string& path, const json& expected,
                                  const json* actual) {
  return absl::StrCat(path, ": expected ", Shortened(expected), ", got ",
                      actual == nullptr ? "nothing" : Shortened(*actual));
}

std::optional<std::string> ValueDiffers(const std::string& path, const json& expected,
                                        const json* actual) {
  if (actual == nullptr) {
    const bool absent = expected.is_null() || (expected.is_number() && expected.get<double>() == 0);
    return absent ? std::nullopt : Differ(path, expected, actual);
  }
  if (expected.is_object() && actual->is_object()) {
    for (const auto& [key, value] : expected.items()) {
      const auto found = actual->find(key);
      if (auto difference = ValueDiffers(path.empty() ? key : absl::StrCat(path, ".", key), value,
                                         found == actual->end() ? nullptr : &*found))
        return difference;
    }
    return std::nullopt;
  }
  if (expected.is_array() && actual->is_array()) {
    if (expected.size() != actual->size()) return Differ(path, expected, actual);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (auto difference =
              ValueDiffers(absl::StrCat(path, "[", i, "]"), expected[i], &(*actual)[i]))
        return difference;
    }
    return std::nullopt;
  }
  if (expected.is_number() && actual->is_number() &&
      (expected.is_number_float() || actual->is_number_float())) {
    const double wanted = expected.get<double>();
    const double got = actual->get<double>();
    const bool same = std::abs(wanted - got) <= 1e-9 * std::max(std::abs(wanted), std::abs(got));
    return same ? std::nullopt : Differ(path, expected, actual);
  }
  return expected == *actual ? std::nullopt : Differ(path, expected, actual);
}

// ---- Reading ------------------------------------------------------------------------------------

// A status if `object` has a key that is not listed, or lacks one of the first `required` of them.
absl::Status CheckKeys(const json& object, const std::vector<std::string>& keys,
                       std::size_t required) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      return absl::InvalidArgumentError(absl::StrCat(key, ": not a key of this object"));
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!object.contains(keys[i]))
      return absl::InvalidArgumentError(absl::StrCat(keys[i], ": missing"));
  }
  return absl::OkStatus();
}

absl::Status ReadLine(const json& line, int number, std::vector<Case>& cases) {
  if (!line.is_object()) return absl::InvalidArgumentError("wanted a JSON object");
  if (!line.contains("format")) {
    if (cases.empty()) return absl::InvalidArgumentError("format: missing in the first line");
    if (absl::Status status =
            CheckKeys(line, {"in", "expect", "expect_corrected", "expect_vllm_0_20"}, 1);
        !status.ok())
      return status;
    if (!line["in"].is_object() || !line["in"].contains("op") || !line["in"]["op"].is_string())
      return absl::InvalidArgumentError("in.op: missing");
    cases.back().steps.push_back({number, line});
    return absl::OkStatus();
  }
  if (absl::Status status = CheckKeys(line, {"format", "id", "title", "sources", "config"}, 5);
      !status.ok())
    return status;
  if (line["format"] != kFormat)
    return absl::InvalidArgumentError(
        absl::StrCat("format: ", line["format"].dump(), ", wanted ", kFormat));
  if (!line["id"].is_string() || !line["title"].is_string() || !line["sources"].is_array() ||
      !line["config"].is_object())
    return absl::InvalidArgumentError("wanted strings id and title, a list sources, a config");
  const std::string id = line["id"];
  if (std::any_of(cases.begin(), cases.end(), [&](const Case& c) { return c.id == id; }))
    return absl::InvalidArgumentError(absl::StrCat("id: ", id, " is in use"));
  cases.push_back({.id = id, .title = line["title"], .config = line["config"], .steps = {}});
  return absl::OkStatus();
}

// A case that expects nothing of a behaviour cannot fail there.
absl::Status CheckExpectsSomething(const Case& test_case) {
  for (const char* behavior : kCaseBehaviors) {
    const auto expects = [&](const CaseStep& step) {
      return step.text.contains("expect") || step.text.contains(absl::StrCat("expect_", behavior));
    };
    if (std::none_of(test_case.steps.begin(), test_case.steps.end(), expects))
      return absl::InvalidArgumentError(
          absl::StrCat(test_case.id, ": expects nothing of ", behavior));
  }
  return absl::OkStatus();
}

// ---- Running ------------------------------------------------------------------------------------

// One engine and what its answers were so far.
class CaseRun {
 public:
  explicit CaseRun(TraceEngine& engine) : engine_(engine) {}

  // Answers a command of the trace format or of the runner.
  absl::StatusOr<json> Answer(json command) {
    const std::string op = command.at("op");
    if (op == "summary") return Summary();
    if (op == "step") return Steps(std::move(command));
    return Send(std::move(command));
  }

 private:
  absl::StatusOr<json> Send(json command) {
    if (!command.contains("t")) command["t"] = num_commands_;
    ++num_commands_;
    if (command["op"] == "add") prompt_tokens_[command.at("id")] = command.at("prompt").size();
    const absl::StatusOr<std::string_view> text = engine_.Answer(command.dump());
    if (!text.ok()) return text.status();
    json answer = json::parse(*text, nullptr, false);
    if (!answer.is_object())
      return absl::DataLossError(absl::StrCat("no JSON object, but ", std::string(*text)));
    if (answer.contains("error")) return answer;
    if (command["op"] == "schedule") TakeSchedule(answer);
    if (command["op"] == "update") TakeUpdate(answer);
    return answer;
  }

  void TakeSchedule(const json& answer) {
    samples_.clear();
    ++num_steps_;
    std::map<std::string, std::int64_t> tokens;
    for (const json& entry : answer.at("tokens")) {
      tokens[entry.at(0)] = entry.at(1);
      num_scheduled_tokens_ += entry.at(1).get<std::int64_t>();
    }
    const auto add_if_complete = [&](const json& entry, std::int64_t num_output_tokens) {
      const std::string id = entry.at(0);
      const std::int64_t known = static_cast<std::int64_t>(prompt_tokens_[id]) + num_output_tokens;
      if (entry.at(2).get<std::int64_t>() + tokens[id] >= known) samples_.insert(id);
    };
    for (const json& entry : answer.at("new")) {
      add_if_complete(entry, 0);
      FindSharedBlocks(entry);
    }
    for (const json& entry : answer.at("cached")) add_if_complete(entry, entry.at(3));
  }

  // Blocks that a request got in two of its groups, or twice in one; the null block apart.
  void FindSharedBlocks(const json& entry) {
    std::set<std::int64_t> seen;
    for (const json& group : entry.at(1)) {
      for (const json& block : group) {
        if (block != 0 && !seen.insert(block.get<std::int64_t>()).second)
          shared_by_groups_[entry.at(0).get<std::string>()].push_back(block);
      }
    }
  }

  void TakeUpdate(const json& answer) {
    for (const json& output : answer.at("outputs")) {
      json& request = requests_[output.at("id").get<std::string>()];
      if (request.is_null()) request = {{"tokens", json::array()}, {"prefill", json::array()}};
      for (const json& token : output.at("tokens")) request["tokens"].push_back(token);
      if (output.contains("prefill")) request["prefill"].push_back(output["prefill"]);
      if (output.contains("finish")) request["finish"] = output["finish"];
      request["num_tokens"] = request["tokens"].size();
    }
  }

  absl::StatusOr<json> Steps(json command) {
    const int times = command.value("times", 1);
    const bool until_done = command.contains("until_done");
    const int most = until_done ? command["until_done"].get<int>() : times;
    for (const char* key : {"times", "until_done"}) command.erase(key);
    json both;
    for (int i = 0; i < most; ++i) {
      auto schedule = Send({{"op", "schedule"}});
      if (!schedule.ok() || schedule->contains("error")) return schedule;
      json update = command;
      update["op"] = "update";
      update["sampled"] = json::object();
      for (const std::string& id : samples_) update["sampled"][id] = {next_token_++};
      auto updated = Send(std::move(update));
      if (!updated.ok() || updated->contains("error")) return updated;
      both = {{"schedule", *std::move(schedule)}, {"update", *std::move(updated)}};
      if (!until_done) continue;
      auto state = Send({{"op", "state"}});
      if (!state.ok() || state->contains("error")) return state;
      if (state->at("unfinished") == 0) return both;
    }
    if (until_done)
      return json{{"error", "NotDone"}, {"message", absl::StrCat("after ", most, " steps")}};
    return both;
  }

  json Summary() const {
    return {{"steps", num_steps_},
            {"scheduled_tokens", num_scheduled_tokens_},
            {"requests", requests_},
            {"shared_by_groups", shared_by_groups_}};
  }

  TraceEngine& engine_;
  int num_commands_ = 0;
  int num_steps_ = 0;
  std::int64_t num_scheduled_tokens_ = 0;
  std::int32_t next_token_ = 5001;
  std::map<std::string, std::size_t> prompt_tokens_;
  std::set<std::string> samples_;  // of the newest schedule: whose prefill it completes
  json requests_ = json::object();
  json shared_by_groups_ = json::object();
};

absl::StatusOr<std::optional<std::string>> RunSteps(const Case& test_case,
                                                    const std::string& behavior,
                                                    TraceEngine& engine) {
  CaseRun run(engine);
  const json configure = {{"op", "configure"}, {"config", test_case.config}};
  const std::string own_key = absl::StrCat("expect_", behavior);
  const auto start = run.Answer(configure);
  if (!start.ok()) return start.status();
  if (start->contains("error")) return absl::StrCat("configure: ", start->dump());
  for (const CaseStep& step : test_case.steps) {
    const json& command = step.text.at("in");
    const auto answer = run.Answer(command);
    if (!answer.ok()) return answer.status();
    const auto where = [&](const std::string& what) {
      return absl::StrCat("line ", step.line, ", ", command.at("op").get<std::string>(), ": ",
                          what);
    };
    bool error_was_expected = false;
    for (const std::string& key : {std::string("expect"), own_key}) {
      if (!step.text.contains(key)) continue;
      if (auto difference = PartDiffers(step.text[key], *answer))
        return where(absl::StrCat(key, ": ", *difference, "\n  whole answer: ", answer->dump()));
      error_was_expected |= step.text[key].contains("error");
    }
    if (!answer->contains("error")) continue;
    if (!error_was_expected) return where(answer->dump());
    return std::nullopt;  // the engine ended as the case says
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::vector<Case>> ReadCases(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  std::vector<Case> cases;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    if (text.empty()) continue;
    const json line = json::parse(text, nullptr, false);
    absl::Status status =
        line.is_discarded() ? absl::InvalidArgumentError("no JSON") : ReadLine(line, number, cases);
    if (!status.ok())
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", status.message()));
  }
  for (const Case& test_case : cases) {
    if (absl::Status status = CheckExpectsSomething(test_case); !status.ok()) return status;
  }
  return cases;
}

std::optional<std::string> PartDiffers(const json& expected, const json& actual) {
  return ValueDiffers("", expected, &actual);
}

absl::StatusOr<std::optional<std::string>> RunCase(const Case& test_case,
                                                   const std::string& behavior,
                                                   TraceEngine& engine) {
  try {
    return RunSteps(test_case, behavior, engine);
  } catch (const json::exception& fault) {  // the one way nlohmann/json tells of a wrong shape
    return absl::DataLossError(
        absl::StrCat(test_case.id, ": a command or an answer has another shape: ", fault.what()));
  }
}

}  // namespace tally
