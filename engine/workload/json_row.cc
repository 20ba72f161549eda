#include "engine/workload/json_row.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cmath>
#include <limits>
#include <utility>

namespace tally {
namespace {

std::string_view Describe(const JsonField& field) {
  if (field.integer != nullptr) return "an integer";
  if (field.number != nullptr) return "a number";
  if (field.text != nullptr) return "a string";
  if (field.flag != nullptr) return "true or false";
  if (field.ids != nullptr) return "an array of hash ids";
  if (field.tokens != nullptr) return "an array of token ids";
  return "an object";
}

}  // namespace

std::size_t JsonRowReader::Column(const char* place) const {
  const char* begin = line_.data();
  if (place < begin || place > begin + line_.size()) return line_.size() + 1;
  return static_cast<std::size_t>(place - begin) + 1;
}

RowError JsonRowReader::Wanted(const JsonField& field, std::string_view token,
                               std::string_view what) const {
  return {Column(token.data()), fmt::format("{}: {}, wanted {}", field.name, Excerpt(token), what)};
}

RowError JsonRowReader::Malformed(simdjson::error_code error) const {
  const char* place = nullptr;
  // The document is a cursor: where it stopped is where the text stopped being JSON.
  simdjson::ondemand::document& document = const_cast<simdjson::ondemand::document&>(document_);
  if (document.current_location().get(place) != simdjson::SUCCESS) {
    place = line_.data() + line_.size();
  }
  return {Column(place), fmt::format("no valid JSON ({}), wanted one object a line",
                                     simdjson::error_message(error))};
}

std::optional<RowError> JsonRowReader::Read(std::string_view line, std::vector<JsonField>& fields) {
  line_.reserve(line.size() + simdjson::SIMDJSON_PADDING);
  line_.assign(line);
  const simdjson::padded_string_view padded(line_.data(), line_.size(), line_.capacity());
  if (const auto error = parser_.iterate(padded).get(document_)) {
    // No document yet: nothing says where.
    return RowError{1, fmt::format("no valid JSON ({}), wanted one object a line",
                                   simdjson::error_message(error))};
  }
  simdjson::ondemand::object object;
  if (const auto error = document_.get_object().get(object)) {
    if (error != simdjson::INCORRECT_TYPE) return Malformed(error);
    return RowError{1, fmt::format("{}, wanted a JSON object", Excerpt(line_))};
  }
  if (std::optional<RowError> error = ReadObject(object, fields, "the row")) return error;
  const char* behind = nullptr;
  if (document_.current_location().get(behind) == simdjson::SUCCESS) {
    return RowError{Column(behind), "text behind the object, wanted one object a line"};
  }
  return std::nullopt;
}

std::optional<RowError> JsonRowReader::ReadObject(simdjson::ondemand::object object,
                                                  std::vector<JsonField>& fields,
                                                  std::string_view context) {
  for (JsonField& field : fields) field.found = false;
  for (auto item : object) {
    simdjson::ondemand::field pair;
    if (const auto error = std::move(item).get(pair)) return Malformed(error);
    const char* key_place = pair.key().raw();
    std::string_view key;
    if (const auto error = pair.unescaped_key().get(key)) return Malformed(error);
    JsonField* wanted = nullptr;
    for (JsonField& field : fields) {
      if (field.name == key) wanted = &field;
    }
    if (wanted == nullptr) {
      // Looking at the value makes the parser check that it is one.
      simdjson::ondemand::json_type type;
      if (const auto error = pair.value().type().get(type)) return Malformed(error);
      continue;
    }
    if (wanted->found) {
      return RowError{Column(key_place), fmt::format("{}: twice, wanted it once", key)};
    }
    wanted->found = true;
    if (std::optional<RowError> error = ReadField(pair.value(), *wanted)) return error;
  }
  for (const JsonField& field : fields) {
    if (field.required && !field.found) {
      const char* place = nullptr;
      if (document_.current_location().get(place) != simdjson::SUCCESS) {
        place = line_.data() + line_.size();
      }
      return RowError{Column(place), fmt::format("{}: missing in {}, wanted {}", field.name,
                                                 context, Describe(field))};
    }
  }
  return std::nullopt;
}

std::optional<RowError> JsonRowReader::ReadField(simdjson::ondemand::value value,
                                                 JsonField& field) {
  if (field.ids != nullptr) return ReadIds(value, field);
  if (field.tokens != nullptr) return ReadTokens(value, field);
  const std::string_view token = value.raw_json_token();
  if (field.integer != nullptr) {
    std::int64_t integer = 0;
    if (value.get_int64().get(integer) || integer < field.least || integer > field.most) {
      return Wanted(field, token, fmt::format("an integer from {} to {}", field.least, field.most));
    }
    *field.integer = integer;
  } else if (field.number != nullptr) {
    double number = 0;
    // 1e15 units is thirty thousand years even in milliseconds; a double still tells them apart.
    if (value.get_double().get(number) || !std::isfinite(number) || number < 0 || number > 1e15) {
      return Wanted(field, token, "a number from 0 to 1e15");
    }
    *field.number = number;
  } else if (field.text != nullptr) {
    std::string_view text;
    if (value.get_string().get(text)) return Wanted(field, token, Describe(field));
    *field.text = std::string(text);
  } else if (field.flag != nullptr) {
    bool flag = false;
    if (value.get_bool().get(flag)) return Wanted(field, token, Describe(field));
    *field.flag = flag;
  } else if (field.object != nullptr) {
    simdjson::ondemand::object object;
    if (value.get_object().get(object)) return Wanted(field, token, Describe(field));
    return ReadObject(object, *field.object, field.name);
  }
  return std::nullopt;
}

std::optional<RowError> JsonRowReader::ReadIds(simdjson::ondemand::value value, JsonField& field) {
  const std::string_view token = value.raw_json_token();
  simdjson::ondemand::array array;
  if (value.get_array().get(array)) return Wanted(field, token, Describe(field));
  field.ids->clear();
  for (auto item : array) {
    simdjson::ondemand::value element;
    if (const auto error = std::move(item).get(element)) return Malformed(error);
    const std::string_view element_token = element.raw_json_token();
    std::string_view text;
    std::int64_t number = 0;
    std::uint64_t large = 0;
    if (!element.get_int64().get(number)) {
      field.ids->push_back(static_cast<std::uint64_t>(number));
    } else if (!element.get_uint64().get(large)) {
      field.ids->push_back(large);
    } else if (!element.get_string().get(text)) {
      field.ids->push_back(XXH3_64bits(text.data(), text.size()));
    } else {
      return Wanted(field, element_token, "a hash id: a 64-bit integer or a string");
    }
  }
  return std::nullopt;
}

std::optional<RowError> JsonRowReader::ReadTokens(simdjson::ondemand::value value,
                                                  JsonField& field) {
  const std::string_view token = value.raw_json_token();
  simdjson::ondemand::array array;
  if (value.get_array().get(array)) return Wanted(field, token, Describe(field));
  field.tokens->clear();
  for (auto item : array) {
    simdjson::ondemand::value element;
    if (const auto error = std::move(item).get(element)) return Malformed(error);
    const std::string_view element_token = element.raw_json_token();
    std::int64_t number = 0;
    if (element.get_int64().get(number) || number < 0 ||
        number > std::numeric_limits<TokenId>::max()) {
      return Wanted(field, element_token, "a token id from 0 to 2147483647");
    }
    field.tokens->push_back(static_cast<TokenId>(number));
  }
  return std::nullopt;
}

}  // namespace tally
