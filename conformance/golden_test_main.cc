// The body of every golden test: replays the traces of one recording, each as a test case of its
// own.
//
//   golden_test RECORDING NUMBER_OF_TRACES BEHAVIOR
//
// Ends with how many values were compared and what, if anything, was left out.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/trace_engine.h"
#include "conformance/trace_reader.h"
#include "conformance/trace_replayer.h"
#include "engine/core/behavior.h"

namespace tally {
namespace {

// The recording, read forward only: test cases run in its order, each passing over the traces of
// other shards.
class Recording {
 public:
  Recording(std::string path, const EngineConfig& defaults)
      : path_(std::move(path)), engine_(defaults), replayer_(engine_, CompareOptions{}) {}

  // Names of all traces.
  absl::StatusOr<std::vector<std::string>> Names() const {
    auto reader = TraceReader::Open(path_);
    if (!reader.ok()) return reader.status();
    std::vector<std::string> names;
    TraceHeader header;
    while (true) {
      const absl::StatusOr<bool> more = (*reader)->NextTrace(header);
      if (!more.ok()) return more.status();
      if (!*more) return names;
      names.push_back(header.name);
    }
  }

  absl::StatusOr<std::optional<TraceDifference>> Replay(std::size_t trace) {
    if (reader_ == nullptr || trace < next_trace_) {
      auto reader = TraceReader::Open(path_);
      if (!reader.ok()) return reader.status();
      reader_ = *std::move(reader);
      next_trace_ = 0;
    }
    TraceHeader header;
    while (next_trace_ <= trace) {
      const absl::StatusOr<bool> more = reader_->NextTrace(header);
      if (!more.ok()) return more.status();
      if (!*more) return absl::OutOfRangeError("the recording holds fewer traces than before");
      ++next_trace_;
    }
    ++num_replayed_;
    return replayer_.Replay(header, *reader_);
  }

  void PrintCount() const {
    std::printf("compared %lld values in %lld steps of %d traces\n",
                static_cast<long long>(replayer_.count().compared),
                static_cast<long long>(replayer_.num_steps()), num_replayed_);
    std::int64_t left_out = 0;
    for (const auto& [name, count] : replayer_.count().left_out) {
      std::printf("not compared: %s, %lld times\n", name.c_str(), static_cast<long long>(count));
      left_out += count;
    }
    std::printf("not compared: %lld values in all\n", static_cast<long long>(left_out));
  }

 private:
  std::string path_;
  InProcessEngine engine_;
  TraceReplayer replayer_;
  std::unique_ptr<TraceReader> reader_;
  std::size_t next_trace_ = 0;
  int num_replayed_ = 0;
};

class TraceCase : public testing::Test {
 public:
  TraceCase(Recording& recording, std::size_t trace) : recording_(recording), trace_(trace) {}

  void TestBody() override {
    const auto difference = recording_.Replay(trace_);
    ASSERT_TRUE(difference.ok()) << difference.status();
    if (difference->has_value()) FAIL() << (*difference)->Describe(true);
  }

 private:
  Recording& recording_;
  std::size_t trace_;
};

class CountOfTraces : public testing::Test {
 public:
  CountOfTraces(std::size_t expected, std::size_t actual) : expected_(expected), actual_(actual) {}

  void TestBody() override {
    EXPECT_EQ(actual_, expected_) << "the recording is not the one that the test was made for";
  }

 private:
  std::size_t expected_;
  std::size_t actual_;
};

// "preempt/7" as a name that --gtest_filter takes for one case.
std::string CaseName(std::string name) {
  for (char& c : name) {
    if (c == '/') c = '.';
  }
  return name;
}

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s RECORDING NUMBER_OF_TRACES BEHAVIOR\n", argv[0]);
    return 2;
  }
  const auto behavior = BehaviorByName(argv[3]);
  if (!behavior) {
    std::fprintf(stderr, "behavior: %s, wanted vllm_0_20 or corrected\n", argv[3]);
    return 2;
  }
  EngineConfig defaults;
  defaults.behavior = *behavior;
  static Recording recording(argv[1], defaults);
  const auto names = recording.Names();
  if (!names.ok()) {
    std::fprintf(stderr, "%s\n", names.status().ToString().c_str());
    return 2;
  }
  const auto expected = static_cast<std::size_t>(std::strtoull(argv[2], nullptr, 10));
  const std::size_t actual = names->size();
  testing::RegisterTest("Golden", "CountOfTraces", nullptr, nullptr, __FILE__, __LINE__,
                        [=]() -> testing::Test* { return new CountOfTraces(expected, actual); });
  for (std::size_t i = 0; i < names->size(); ++i) {
    testing::RegisterTest("Golden", CaseName((*names)[i]).c_str(), nullptr, nullptr, __FILE__,
                          __LINE__,
                          [i]() -> testing::Test* { return new TraceCase(recording, i); });
  }
  const int result = RUN_ALL_TESTS();
  recording.PrintCount();
  return result;
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) { return tally::Main(argc, argv); }
