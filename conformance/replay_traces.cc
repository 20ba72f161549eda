// Replays trace files against an engine, this one or the one of --engine, and prints the first
// difference of each trace.
//
//   replay_traces [--engine COMMAND] [--behavior vllm_0_20] [--level 3] [--lenient] [--ignore KEY]
//                 [--brief] FILE...
//
// The exit status is 0 only when every trace of every file is the same.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "conformance/json_compare.h"
#include "conformance/process_engine.h"
#include "conformance/trace_engine.h"
#include "conformance/trace_reader.h"
#include "conformance/trace_replayer.h"
#include "engine/core/behavior.h"

namespace {

struct Totals {
  std::int64_t traces = 0;
  std::int64_t same = 0;
};

// Answers false for a file that cannot be read to its end.
bool ReplayFile(const std::string& path, tally::TraceReplayer& replayer, bool brief,
                Totals& totals) {
  const auto reader = tally::TraceReader::Open(path);
  if (!reader.ok()) {
    std::fprintf(stderr, "%s\n", reader.status().ToString().c_str());
    return false;
  }
  Totals file;
  tally::TraceHeader header;
  while (true) {
    const auto more = (*reader)->NextTrace(header);
    if (!more.ok()) {
      std::fprintf(stderr, "%s\n", more.status().ToString().c_str());
      return false;
    }
    if (!*more) break;
    ++file.traces;
    const auto difference = replayer.Replay(header, **reader);
    if (!difference.ok()) {
      std::fprintf(stderr, "%s\n", difference.status().ToString().c_str());
      return false;
    }
    if (difference->has_value()) {
      std::printf("%s\n", (*difference)->Describe(!brief).c_str());
    } else {
      ++file.same;
    }
  }
  std::printf("%s: %lld of %lld traces the same\n", path.c_str(), static_cast<long long>(file.same),
              static_cast<long long>(file.traces));
  totals.traces += file.traces;
  totals.same += file.same;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Replays traces of the format prefill-trace/1 against an engine.");
  std::string command;
  double timeout = 30;
  std::vector<std::string> files;
  std::vector<std::string> ignored;
  std::string behavior_name = "vllm_0_20";
  int level = 3;
  bool lenient = false;
  bool brief = false;
  app.add_option("files", files, "trace files, plain or gzip-compressed")->required();
  app.add_option("--engine", command,
                 "a command that reads the format's commands, one a line, and answers each by a "
                 "line; without it Tally in this process");
  app.add_option("--timeout", timeout, "seconds that the command may take for an answer")
      ->check(CLI::Range(0.001, 1e6));
  app.add_option("--behavior", behavior_name, "of Tally: vllm_0_20 or corrected");
  app.add_option("--level", level, "1 accounting, 2 decisions, 3 blocks")->check(CLI::Range(1, 3));
  app.add_option("--ignore", ignored, "keys that are not compared");
  app.add_flag("--lenient", lenient, "accept keys that a recording lacks");
  app.add_flag("--brief", brief, "one line a difference");
  CLI11_PARSE(app, argc, argv);

  const auto behavior = tally::BehaviorByName(behavior_name);
  if (!behavior) {
    std::fprintf(stderr, "--behavior: %s, wanted vllm_0_20 or corrected\n", behavior_name.c_str());
    return 2;
  }
  tally::EngineConfig defaults;
  defaults.behavior = *behavior;
  std::unique_ptr<tally::TraceEngine> engine;
  if (command.empty()) {
    engine = std::make_unique<tally::InProcessEngine>(defaults);
  } else {
    engine = std::make_unique<tally::ProcessEngine>(tally::ProcessEngine::Options{
        .command = command,
        .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000))});
  }
  tally::TraceReplayer replayer(*engine, {.strict = !lenient,
                                          .level = static_cast<tally::Level>(level),
                                          .ignored_keys = {ignored.begin(), ignored.end()}});
  Totals totals;
  bool readable = true;
  for (const std::string& file : files) readable &= ReplayFile(file, replayer, brief, totals);

  std::printf("total: %lld of %lld traces the same, %lld steps, %lld values compared\n",
              static_cast<long long>(totals.same), static_cast<long long>(totals.traces),
              static_cast<long long>(replayer.num_steps()),
              static_cast<long long>(replayer.count().compared));
  for (const auto& [name, count] : replayer.count().left_out) {
    std::printf("not compared: %s, %lld times\n", name.c_str(), static_cast<long long>(count));
  }
  return readable && totals.same == totals.traces ? 0 : 1;
}
