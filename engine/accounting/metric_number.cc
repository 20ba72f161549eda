#include "engine/accounting/metric_number.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace tally {
namespace {

std::string Exponent(int exponent) {
  const int magnitude = std::abs(exponent);
  return std::string(exponent < 0 ? "e-" : "e+") + (magnitude < 10 ? "0" : "") +
         std::to_string(magnitude);
}

}  // namespace

std::string MetricNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";

  // Shortest digits and decimal exponent, from "d.ddde[+-]xx".
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), std::fabs(value),
                                 std::chars_format::scientific)
                       .ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t mark = text.find('e');
  std::string digits(text.substr(0, 1));
  if (mark > 1) digits.append(text.substr(2, mark - 2));
  int exponent = 0;
  const std::string_view exponent_text = text.substr(mark + (text[mark + 1] == '+' ? 2 : 1));
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);

  const std::string sign = value < 0 ? "-" : "";
  const bool in_exponent_form = exponent < -4 || exponent >= 16 || (value > 0 && exponent >= 6);
  if (in_exponent_form) {
    std::string mantissa = digits.substr(0, 1);
    if (digits.size() > 1) mantissa += "." + digits.substr(1);
    return sign + mantissa + Exponent(exponent);
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace tally
