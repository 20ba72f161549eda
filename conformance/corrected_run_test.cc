// The corrected engine on every recorded sequence of commands: its decisions are others than the
// recording's, so the answers are not compared. After every command all invariants hold; no command
// ends in a fault; and when the recording ends the engine drains: every request ends, every block
// comes back.
//
//   corrected_run_test RECORDING...
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "conformance/trace_reader.h"
#include "engine/protocol/protocol_engine.h"

namespace tally {
namespace {

using Json = nlohmann::json;

class CorrectedRun {
 public:
  explicit CorrectedRun(const TraceHeader& header) : name_(header.name) {
    const Json configure = {{"op", "configure"}, {"config", Json::parse(header.config)}};
    Answer(configure);
  }

  bool ok() const { return ok_; }

  void Command(const Json& recorded) {
    Json command = recorded;
    now_ = std::max(now_, command.value("t", now_));
    if (command["op"] == "update") {
      if (scheduler().num_outstanding_steps() == 0) return;
      Adapt(command);
    }
    Answer(command);
  }

  void Drain() {
    Answer({{"op", "pause"}, {"state", "unpaused"}});
    std::vector<std::string> known;
    for (const RequestHandle request : scheduler().KnownRequests()) {
      if (IsFinished(scheduler().state(request).status)) continue;
      known.emplace_back(scheduler().id(request));
      if (!scheduler().state(request).resumable) continue;
      Answer({{"op", "add"}, {"id", known.back()}, {"prompt", Json::array()}, {"max_tokens", 1}});
    }
    Answer({{"op", "grammar_ready"}, {"ids", known}});
    constexpr int kMostSteps = 20000;
    for (int i = 0; i < kMostSteps && scheduler().has_work() && ok_; ++i) {
      Answer({{"op", "schedule"}});
      while (scheduler().num_outstanding_steps() > 0 && ok_) {
        Json update = {{"op", "update"}, {"sampled", Json::object()}};
        Adapt(update);
        ReportAllTransfers(update);
        Answer(update);
      }
    }
    if (!ok_) return;
    EXPECT_FALSE(scheduler().has_work()) << name_ << ": does not drain";
    EXPECT_EQ(scheduler().num_unfinished(), 0U) << name_;
    EXPECT_EQ(scheduler().kv().num_free_blocks() + 1, scheduler().kv().pool().num_blocks())
        << name_ << ": blocks are lost";
    EXPECT_TRUE(scheduler().KnownRequests().empty()) << name_;
  }

 private:
  const Scheduler& scheduler() const { return *engine_.scheduler(); }

  void Answer(Json command) {
    if (!ok_) return;
    if (command["op"] != "configure") command["t"] = now_;
    const Json answer = Json::parse(engine_.Answer(command.dump()));
    ++num_commands_;
    const std::string error = answer.value("error", "");
    // What can never run is refused; blocks in use withstand a reset.
    const bool expected = error.empty() || (error == "InvalidCommand" && command["op"] == "add") ||
                          (error == "RuntimeError" && command["op"] == "reset_prefix_cache");
    ok_ = expected;
    EXPECT_TRUE(expected) << name_ << ", command " << num_commands_ << ": "
                          << command.dump().substr(0, 400) << " -> " << answer.dump();
    if (ok_) scheduler().CheckInvariants();
  }

  // Gives every request of the oldest step that samples its recorded tokens, or others.
  void Adapt(Json& command) {
    const Json recorded = command.value("sampled", Json::object());
    const Json drafts = command.value("drafts", Json::object());
    Json sampled = Json::object();
    Json kept_drafts = Json::object();
    Json pooled = Json::array();
    const auto most_drafts = static_cast<std::size_t>(scheduler().config().num_speculative_tokens);
    for (const ScheduledRequest& entry : scheduler().oldest_outstanding()) {
      const std::string id(scheduler().id(entry.request));
      if (drafts.contains(id) && drafts[id].size() <= most_drafts) kept_drafts[id] = drafts[id];
      if (!entry.samples) continue;
      if (scheduler().state(entry.request).pooling) {
        pooled.push_back(id);
        continue;
      }
      Json tokens = recorded.value(id, Json::array({7}));
      if (tokens.empty()) tokens = Json::array({7});
      while (tokens.size() > 1 + static_cast<std::size_t>(entry.num_draft_tokens))
        tokens.erase(tokens.size() - 1);
      sampled[id] = tokens;
    }
    command["sampled"] = sampled;
    command.erase("pooled");
    if (!pooled.empty()) command["pooled"] = pooled;
    command.erase("drafts");
    if (!kept_drafts.empty()) command["drafts"] = kept_drafts;
    if (scheduler().kv().num_groups() > 1) command.erase("invalid_blocks");
  }

  void ReportAllTransfers(Json& update) {
    if (scheduler().connector() == nullptr) return;
    Json receives = Json::array();
    Json sends = Json::array();
    for (const RequestHandle request : scheduler().KnownRequests()) {
      const RequestState& state = scheduler().state(request);
      if (state.status == RequestStatus::kWaitingForRemoteKvs || state.awaits_receive)
        receives.push_back(scheduler().id(request));
      if (state.awaits_send) sends.push_back(scheduler().id(request));
    }
    update["finished_recving"] = receives;
    update["finished_sending"] = sends;
  }

  const std::string name_;
  ProtocolEngine engine_;
  double now_ = 0;
  std::int64_t num_commands_ = 0;
  bool ok_ = true;
};

class RecordingCase : public testing::Test {
 public:
  explicit RecordingCase(std::string path) : path_(std::move(path)) {}

  void TestBody() override {
    auto reader = TraceReader::Open(path_);
    ASSERT_TRUE(reader.ok()) << reader.status();
    TraceHeader header;
    std::int64_t traces = 0;
    for (;;) {
      const absl::StatusOr<bool> more = (*reader)->NextTrace(header);
      ASSERT_TRUE(more.ok()) << more.status();
      if (!*more) break;
      ++traces;
      CorrectedRun run(header);
      TraceStep step;
      while (run.ok()) {
        const absl::StatusOr<bool> next = (*reader)->NextStep(step);
        ASSERT_TRUE(next.ok()) << next.status();
        if (!*next) break;
        run.Command(Json::parse(step.in));
      }
      if (run.ok()) run.Drain();
    }
    EXPECT_GT(traces, 0);
    std::printf("%lld traces\n", static_cast<long long>(traces));
  }

 private:
  const std::string path_;
};

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s RECORDING...\n", argv[0]);
    return 2;
  }
  for (int i = 1; i < argc; ++i) {
    const std::string path = argv[i];
    std::string name = path.substr(path.rfind('/') + 1);
    name = name.substr(0, name.find(".jsonl"));
    testing::RegisterTest("Corrected", name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [path]() -> testing::Test* { return new RecordingCase(path); });
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) { return tally::Main(argc, argv); }
