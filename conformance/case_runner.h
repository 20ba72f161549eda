// Runs cases: short runs of an engine with the parts of its answers that are known to be right, or
// known to be what a release does. The format: conformance/cases/README.md.
//
// A case names its commands in the trace format; two more, "step" and "summary", are the runner's
// own, since what a model samples depends on what the engine scheduled. Not thread-safe.
#ifndef TALLY_CONFORMANCE_CASE_RUNNER_H_
#define TALLY_CONFORMANCE_CASE_RUNNER_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "conformance/trace_engine.h"

namespace tally {

// The behaviours that a case may have expectations for, as in BehaviorByName.
inline constexpr const char* kCaseBehaviors[] = {"corrected", "vllm_0_20"};

struct CaseStep {
  int line = 0;         // of the file
  nlohmann::json text;  // {"in": command, "expect": ..., "expect_<behavior>": ...}
};

struct Case {
  std::string id;
  std::string title;
  nlohmann::json config;
  std::vector<CaseStep> steps;
};

// Reads a file of cases. A status names the line that is no part of a case, and why: every key is
// checked, each behaviour must be expected to do something, and ids are used once.
absl::StatusOr<std::vector<Case>> ReadCases(const std::string& path);

// The first part of `actual` that is not as `expected` says, as "path: expected x, got y"; nothing
// if there is none. Only what is listed is compared: of objects the listed keys, where null says
// that the key is absent and 0 that it is absent or 0; of arrays all elements; numbers with a
// fraction to 1e-9 of their size.
std::optional<std::string> PartDiffers(const nlohmann::json& expected,
                                       const nlohmann::json& actual);

// Runs a case on an engine of that behaviour. Answers where and how it differs first, or nothing.
// A status says that there is no engine any more.
absl::StatusOr<std::optional<std::string>> RunCase(const Case& test_case,
                                                   const std::string& behavior,
                                                   TraceEngine& engine);

}  // namespace tally

#endif  // TALLY_CONFORMANCE_CASE_RUNNER_H_
