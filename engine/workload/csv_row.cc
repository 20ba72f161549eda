#include "engine/workload/csv_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tally {

void CsvRow::Split(std::string_view line) {
  fields_.clear();
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = line.find(',', begin);
    fields_.push_back({line.substr(begin, end - begin), begin + 1});
    if (end == std::string_view::npos) return;
    begin = end + 1;
  }
}

std::optional<RowError> CsvRow::CheckSize(std::string_view names) const {
  const auto wanted = static_cast<std::size_t>(std::count(names.begin(), names.end(), ',')) + 1;
  if (size() == wanted) return std::nullopt;
  const CsvField& place = size() < wanted ? fields_.back() : fields_[wanted];
  return RowError{size() < wanted ? place.column + place.text.size() : place.column,
                  fmt::format("{} fields, wanted {}: {}", size(), wanted, names)};
}

std::optional<RowError> CsvRow::Integer(std::size_t index, std::string_view name,
                                        std::int64_t least, std::int64_t most,
                                        std::int64_t& value) const {
  const std::string_view text = fields_[index].text;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) {
    return std::nullopt;
  }
  return RowError{fields_[index].column,
                  fmt::format("{}: {}, wanted an integer from {} to {}", name,
                              text.empty() ? "nothing" : Excerpt(text), least, most)};
}

}  // namespace tally
