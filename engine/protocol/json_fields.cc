#include "engine/protocol/json_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

using simdjson::dom::element;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string Range(std::int64_t least, std::int64_t most) {
  return absl::StrCat("an integer from ", least, " to ", most);
}

bool IsOff(element value) {
  if (value.is_null()) return true;
  if (bool flag = false; value.get(flag) == simdjson::SUCCESS) return !flag;
  if (std::int64_t number = 0; value.get(number) == simdjson::SUCCESS) return number == 0;
  return false;
}

}  // namespace

std::string Shortened(std::string_view text) {
  if (text.size() <= kMaxQuotedBytes) return std::string(text);
  std::size_t length = kMaxQuotedBytes;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return std::string(text.substr(0, length)) + "...";
}

std::string QuoteJson(element value) {
  // Containers may be huge: their kind says enough.
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return Shortened(simdjson::minify(value));
}

JsonFields::JsonFields(std::string_view name, simdjson::dom::object object)
    : name_(name), object_(object) {}

void JsonFields::Fail(std::string_view key, std::string_view value, std::string_view wanted) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      absl::StrCat(View(name_), ".", View(key), ": ", View(value), ", wanted ", View(wanted)));
}

void JsonFields::FailKind(std::string_view key, element value, std::string_view wanted) {
  Fail(key, QuoteJson(value), wanted);
}

void JsonFields::FailMissing(std::string_view key) {
  if (status_.ok())
    status_ = absl::InvalidArgumentError(absl::StrCat(View(name_), ".", View(key), ": missing"));
}

std::optional<element> JsonFields::Find(std::string_view key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.push_back(key);
  for (const auto& field : object_) {
    if (field.key == key) return field.value;
  }
  return std::nullopt;
}

bool JsonFields::Has(std::string_view key) { return Find(key).has_value(); }

std::optional<std::int64_t> JsonFields::OptionalInt(std::string_view key, std::int64_t least,
                                                    std::int64_t most) {
  const auto value = Find(key);
  if (!value || value->is_null()) return std::nullopt;
  std::int64_t number = 0;
  if (value->get(number) != simdjson::SUCCESS || number < least || number > most) {
    FailKind(key, *value, Range(least, most));
    return std::nullopt;
  }
  return number;
}

std::int64_t JsonFields::Int(std::string_view key, std::int64_t least, std::int64_t most,
                             std::int64_t absent) {
  return OptionalInt(key, least, most).value_or(absent);
}

std::int64_t JsonFields::Int(std::string_view key, std::int64_t least, std::int64_t most) {
  const auto number = OptionalInt(key, least, most);
  if (!number) FailMissing(key);
  return number.value_or(least);
}

bool JsonFields::Bool(std::string_view key, bool absent) {
  const auto value = Find(key);
  if (!value) return absent;
  bool flag = absent;
  if (value->get(flag) != simdjson::SUCCESS) FailKind(key, *value, "true or false");
  return flag;
}

double JsonFields::Double(std::string_view key, double least, double absent) {
  const auto value = Find(key);
  if (!value) return absent;
  double number = absent;
  if (value->get(number) != simdjson::SUCCESS || !std::isfinite(number) || number < least) {
    FailKind(key, *value, absl::StrCat("a number from ", least, " on"));
    return absent;
  }
  return number;
}

std::string_view JsonFields::String(std::string_view key, std::string_view absent) {
  const auto value = Find(key);
  if (!value) return absent;
  std::string_view text = absent;
  if (value->get(text) != simdjson::SUCCESS) FailKind(key, *value, "a string");
  return text;
}

std::string_view JsonFields::String(std::string_view key) {
  if (!Has(key)) FailMissing(key);
  return String(key, "");
}

std::optional<simdjson::dom::object> JsonFields::Object(std::string_view key) {
  const auto value = Find(key);
  if (!value) return std::nullopt;
  simdjson::dom::object object;
  if (value->get(object) != simdjson::SUCCESS) {
    FailKind(key, *value, "an object");
    return std::nullopt;
  }
  return object;
}

std::optional<simdjson::dom::array> JsonFields::Array(std::string_view key) {
  const auto value = Find(key);
  if (!value) return std::nullopt;
  simdjson::dom::array array;
  if (value->get(array) != simdjson::SUCCESS) {
    FailKind(key, *value, "an array");
    return std::nullopt;
  }
  return array;
}

void JsonFields::Tokens(std::string_view key, bool required, std::vector<TokenId>& tokens) {
  const auto value = Find(key);
  if (!value) {
    if (required) FailMissing(key);
    return;
  }
  if (status_.ok())
    status_ = ReadTokens(std::string(name_) + "." + std::string(key), *value, tokens);
}

void JsonFields::Unsupported(std::string_view key, std::string_view supported) {
  const auto value = Find(key);
  if (value && !IsOff(*value)) {
    Fail(key, QuoteJson(*value),
         absl::StrCat("it absent: not supported by this engine, which has ", View(supported)));
  }
}

absl::Status JsonFields::Finish() {
  std::vector<std::string_view> seen;
  for (const auto& field : object_) {
    if (!status_.ok()) break;
    if (std::find(asked_.begin(), asked_.end(), field.key) == asked_.end()) {
      status_ =
          absl::InvalidArgumentError(absl::StrCat(View(name_), ".", Shortened(field.key), ": ",
                                                  QuoteJson(field.value), ", an unknown key"));
    } else if (std::find(seen.begin(), seen.end(), field.key) != seen.end()) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat(View(name_), ".", View(field.key), ": given twice"));
    }
    seen.push_back(field.key);
  }
  return status_;
}

absl::Status ReadTokens(std::string_view name, element value, std::vector<TokenId>& tokens) {
  constexpr std::int64_t kMostToken = std::numeric_limits<TokenId>::max();
  simdjson::dom::array array;
  if (value.get(array) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrCat(View(name), ": ", QuoteJson(value), ", wanted an array of token ids"));
  }
  std::size_t place = 0;
  for (const element token : array) {
    std::int64_t number = 0;
    if (token.get(number) != simdjson::SUCCESS || number < 0 || number > kMostToken) {
      return absl::InvalidArgumentError(absl::StrCat(
          View(name), "[", place, "]: ", QuoteJson(token), ", wanted ", Range(0, kMostToken)));
    }
    tokens.push_back(static_cast<TokenId>(number));
    ++place;
  }
  return absl::OkStatus();
}

}  // namespace tally
