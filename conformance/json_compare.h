// Compares an engine's answer with the recorded one and names the first difference.
//
// Arrays are ordered, objects are not. Integers are equal or not; numbers of which one has a
// fraction may differ by 1e-9 of their size. A key that the recording has and the answer lacks is a
// difference. A key that the recording lacks is one in a strict comparison (but for "group", which
// recordings leave out when it is 0) and, strict or not, when it is a number other than zero inside
// "metrics" or "prefill": there what is not listed is zero.
#ifndef TALLY_CONFORMANCE_JSON_COMPARE_H_
#define TALLY_CONFORMANCE_JSON_COMPARE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/level.h"
#include "simdjson.h"

namespace tally {

struct CompareOptions {
  bool strict = true;
  Level level = Level::kBlocks;
  std::set<std::string, std::less<>> ignored_keys;  // wherever they stand
};

struct Difference {
  std::string path;      // "outputs[2].prefill.num_cached_tokens"
  std::string expected;  // JSON, shortened; "nothing" when the recording lacks the key
  std::string actual;
};

// What a comparison looked at.
struct CompareCount {
  std::int64_t compared = 0;  // values that are no containers
  std::map<std::string, std::int64_t, std::less<>>
      left_out;  // keys with what is below them, by name

  void Add(const CompareCount& other);
};

class JsonComparer {
 public:
  explicit JsonComparer(CompareOptions options) : options_(std::move(options)) {}

  // The first difference in the order of the recording, or nothing. `op` is the command that was
  // answered.
  std::optional<Difference> Compare(std::string_view op, simdjson::dom::element expected,
                                    simdjson::dom::element actual);

  const CompareCount& count() const { return count_; }

 private:
  bool Skips(std::string_view name);
  bool CompareValue(simdjson::dom::element expected, simdjson::dom::element actual);
  bool CompareObject(simdjson::dom::object expected, simdjson::dom::object actual);
  bool CompareArray(simdjson::dom::array expected, simdjson::dom::array actual);
  bool Report(std::string expected, std::string actual);

  CompareOptions options_;
  CompareCount count_;
  std::vector<std::string_view> path_;
  std::deque<std::string> places_;  // "0", "1", ...: what array segments of the path view
  std::vector<bool> is_place_;      // parallel to path_
  std::optional<Difference> difference_;
};

}  // namespace tally

#endif  // TALLY_CONFORMANCE_JSON_COMPARE_H_
