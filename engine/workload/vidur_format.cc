#include "engine/workload/vidur_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/workload/csv_row.h"

namespace tally {
namespace {

class VidurFormat : public RowFormat {
 public:
  std::string_view name() const override { return "vidur"; }
  bool has_arrivals() const override { return false; }
  bool has_prefixes() const override { return false; }

  Outcome Parse(std::string_view line, WorkloadRequest& request) override {
    if (line == kVidurHeader) return NoRequest();
    row_.Split(line);
    if (std::optional<RowError> error = row_.CheckSize(kVidurHeader)) return Broken(*error);
    std::int64_t prompt = 0, output = 0, total = 0;
    if (std::optional<RowError> error =
            row_.Integer(0, "num_prefill_tokens", 1, kMaxRowTokens, prompt)) {
      return Broken(*error);
    }
    if (std::optional<RowError> error =
            row_.Integer(1, "num_decode_tokens", 0, kMaxRowTokens, output)) {
      return Broken(*error);
    }
    if (std::optional<RowError> error =
            row_.Integer(2, "num_total_tokens", prompt + output, prompt + output, total)) {
      error->message = fmt::format(
          "num_total_tokens: {}, wanted num_prefill_tokens + "
          "num_decode_tokens, {}",
          Excerpt(row_[2].text), prompt + output);
      return Broken(*error);
    }
    request.num_prompt_tokens = static_cast<std::int32_t>(prompt);
    request.num_output_tokens = static_cast<std::int32_t>(std::max<std::int64_t>(output, 1));
    SetOwnPrompt(request);
    return Request();
  }

 private:
  CsvRow row_;
};

}  // namespace

std::unique_ptr<RowFormat> MakeVidurFormat() { return std::make_unique<VidurFormat>(); }

}  // namespace tally
