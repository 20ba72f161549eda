// Public bug reports as tests, each in every behaviour: "BugCases.B01_corrected" gives the right
// answer, "BugCases.B01_vllm_0_20" what that release does.
//
//   bug_cases_test CASES NUMBER_OF_CASES
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "conformance/case_runner.h"
#include "engine/core/behavior.h"

namespace tally {
namespace {

class BugCase : public testing::Test {
 public:
  BugCase(const Case& test_case, const std::string& behavior)
      : case_(test_case), behavior_(behavior) {}

  void TestBody() override {
    EngineConfig defaults;
    defaults.behavior = BehaviorByName(behavior_).value();
    InProcessEngine engine(defaults);
    const auto difference = RunCase(case_, behavior_, engine);
    ASSERT_TRUE(difference.ok()) << difference.status();
    if (difference->has_value()) FAIL() << case_.title << "\n" << **difference;
  }

 private:
  const Case& case_;
  std::string behavior_;
};

class CountOfCases : public testing::Test {
 public:
  CountOfCases(std::size_t expected, std::size_t actual) : expected_(expected), actual_(actual) {}

  void TestBody() override { EXPECT_EQ(actual_, expected_); }

 private:
  std::size_t expected_;
  std::size_t actual_;
};

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s CASES NUMBER_OF_CASES\n", argv[0]);
    return 2;
  }
  static const auto cases = ReadCases(argv[1]);
  if (!cases.ok()) {
    std::fprintf(stderr, "%s\n", cases.status().ToString().c_str());
    return 2;
  }
  const auto expected = static_cast<std::size_t>(std::strtoull(argv[2], nullptr, 10));
  testing::RegisterTest(
      "BugCases", "CountOfCases", nullptr, nullptr, __FILE__, __LINE__,
      [=]() -> testing::Test* { return new CountOfCases(expected, cases->size()); });
  for (const Case& test_case : *cases) {
    for (const char* behavior : kCaseBehaviors) {
      testing::RegisterTest(
          "BugCases", absl::StrCat(test_case.id, "_", behavior).c_str(), nullptr, nullptr, __FILE__,
          __LINE__,
          [&test_case, behavior]() -> testing::Test* { return new BugCase(test_case, behavior); });
    }
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) { return tally::Main(argc, argv); }
