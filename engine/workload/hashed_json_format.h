// What Mooncake's, RTP-LLM's and Qwen-Bailian's traces have in common: JSON lines with an arrival
// time, two lengths and a list of hash ids that stand for a fixed number of prompt tokens each.
#ifndef TALLY_ENGINE_WORKLOAD_HASHED_JSON_FORMAT_H_
#define TALLY_ENGINE_WORKLOAD_HASHED_JSON_FORMAT_H_

#include <string_view>
#include <vector>

#include "engine/workload/json_row.h"
#include "engine/workload/row_format.h"

namespace tally {

class HashedJsonFormat : public RowFormat {
 public:
  struct Keys {
    std::string_view format;
    std::string_view arrival;
    double arrivals_per_second = 1;  // in one second: 1000 for milliseconds
    std::string_view prompt;
    std::string_view output;
    std::string_view ids;
    std::int32_t tokens_per_hash = 0;
    std::string_view priority;  // empty: the format has none
  };

  HashedJsonFormat(const Keys& keys, const FormatOptions& options);

  std::string_view name() const override { return keys_.format; }
  Outcome Parse(std::string_view line, WorkloadRequest& request) override;

 private:
  const Keys keys_;
  const std::int32_t tokens_per_hash_;
  JsonRowReader reader_;
  std::vector<JsonField> fields_;
  double arrival_ = 0;
  std::int64_t prompt_ = 0;
  std::int64_t output_ = 0;
  std::int64_t priority_ = 0;
  std::vector<std::uint64_t> ids_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_HASHED_JSON_FORMAT_H_
