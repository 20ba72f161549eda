#include "engine/protocol/json_number_fault.h"

#include <charconv>
#include <cstdint>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/protocol/json_fields.h"

namespace tally {
namespace {

bool IsNumberCharacter(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

bool OutOfRange(std::string_view number) {
  const char* end = number.data() + number.size();
  if (number.find_first_of(".eE") != std::string_view::npos) {
    double value = 0;
    const auto result = std::from_chars(number.data(), end, value);
    return result.ec == std::errc::result_out_of_range;
  }
  if (number.front() == '-') {
    std::int64_t value = 0;
    return std::from_chars(number.data(), end, value).ec == std::errc::result_out_of_range;
  }
  std::uint64_t value = 0;
  return std::from_chars(number.data(), end, value).ec == std::errc::result_out_of_range;
}

// The place behind a string that starts at `start`.
std::size_t SkipString(std::string_view json, std::size_t start) {
  std::size_t i = start + 1;
  while (i < json.size() && json[i] != '"') i += json[i] == '\\' ? 2 : 1;
  return i + 1;
}

}  // namespace

std::optional<std::string> FindNumberFault(std::string_view json) {
  std::string_view last_string;
  std::string_view key = "command";
  for (std::size_t i = 0; i < json.size();) {
    if (json[i] == '"') {
      const std::size_t end = SkipString(json, i);
      if (end > json.size()) return std::nullopt;
      last_string = json.substr(i + 1, end - i - 2);
      i = end;
    } else if (json[i] == ':') {
      key = last_string;
      ++i;
    } else if (json[i] == '-' || (json[i] >= '0' && json[i] <= '9')) {
      std::size_t end = i;
      while (end < json.size() && IsNumberCharacter(json[end])) ++end;
      const std::string_view number = json.substr(i, end - i);
      if (OutOfRange(number)) {
        return absl::StrCat(Shortened(key), ": ", Shortened(number), ", wanted a number in range");
      }
      i = end;
    } else {
      ++i;
    }
  }
  return std::nullopt;
}

}  // namespace tally
