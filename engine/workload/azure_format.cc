#include "engine/workload/azure_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>

#include "engine/workload/csv_row.h"

namespace tally {
namespace {

// `count` decimal digits at `place`; -1 unless they are there.
int Digits(std::string_view text, std::size_t place, std::size_t count) {
  if (text.size() < place + count) return -1;
  int value = 0;
  for (const char c : text.substr(place, count)) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

// Ten-millionths of a second since 1970: "2023-11-16 18:17:03.9799600", with 0 to 7 decimals.
std::optional<std::int64_t> ParseTimestamp(std::string_view text) {
  constexpr std::int64_t kTicksPerSecond = 10'000'000;
  const int year = Digits(text, 0, 4), month = Digits(text, 5, 2), day = Digits(text, 8, 2);
  const int hour = Digits(text, 11, 2), minute = Digits(text, 14, 2), second = Digits(text, 17, 2);
  if (std::min({year, month, day, hour, minute, second}) < 0) return std::nullopt;
  if (text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') || text[13] != ':' ||
      text[16] != ':' || hour > 23 || minute > 59 || second > 59) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date(std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (!date.ok()) return std::nullopt;
  std::int64_t fraction = 0;
  if (text.size() > 19) {
    const std::size_t decimals = text.size() - 20;
    if (text[19] != '.' || decimals < 1 || decimals > 7) return std::nullopt;
    fraction = Digits(text, 20, decimals);
    if (fraction < 0) return std::nullopt;
    for (std::size_t i = decimals; i < 7; ++i) fraction *= 10;
  }
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return (((days * 24 + hour) * 60 + minute) * 60 + second) * kTicksPerSecond + fraction;
}

class AzureFormat : public RowFormat {
 public:
  std::string_view name() const override { return "azure-2023"; }
  bool has_prefixes() const override { return false; }

  Outcome Parse(std::string_view line, WorkloadRequest& request) override {
    if (line == kAzureHeader) return NoRequest();
    row_.Split(line);
    if (std::optional<RowError> error = row_.CheckSize(kAzureHeader)) return Broken(*error);
    const std::optional<std::int64_t> time = ParseTimestamp(row_[0].text);
    if (!time.has_value()) {
      return Broken({row_[0].column,
                     fmt::format("TIMESTAMP: {}, wanted a time like 2023-11-16 18:17:03.9799600",
                                 Excerpt(row_[0].text))});
    }
    std::int64_t prompt = 0, output = 0;
    if (std::optional<RowError> error =
            row_.Integer(1, "ContextTokens", 1, kMaxRowTokens, prompt)) {
      return Broken(*error);
    }
    if (std::optional<RowError> error =
            row_.Integer(2, "GeneratedTokens", 0, kMaxRowTokens, output)) {
      return Broken(*error);
    }
    if (!first_.has_value()) first_ = *time;
    request.arrival = static_cast<double>(*time - *first_) / 1e7;
    request.num_prompt_tokens = static_cast<std::int32_t>(prompt);
    request.num_output_tokens = static_cast<std::int32_t>(std::max<std::int64_t>(output, 1));
    SetOwnPrompt(request);
    return Request();
  }

 private:
  CsvRow row_;
  std::optional<std::int64_t> first_;
};

}  // namespace

std::unique_ptr<RowFormat> MakeAzureFormat() { return std::make_unique<AzureFormat>(); }

}  // namespace tally
