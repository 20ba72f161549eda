#include "conformance/json_compare.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/protocol/json_fields.h"

namespace tally {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

constexpr double kRelativeTolerance = 1e-9;

// By type: is_double() answers true for an integer too, since it can be read as a double.
bool IsDouble(element value) { return value.type() == element_type::DOUBLE; }
bool IsNumber(element value) {
  return IsDouble(value) || value.type() == element_type::INT64 ||
         value.type() == element_type::UINT64;
}

bool SameNumber(element expected, element actual) {
  if (!IsDouble(expected) && !IsDouble(actual)) {
    return simdjson::minify(expected) == simdjson::minify(actual);
  }
  const double a = expected.get_double().value();
  const double b = actual.get_double().value();
  return std::abs(a - b) <= kRelativeTolerance * std::max(1.0, std::abs(a));
}

bool IsZero(element value) { return IsNumber(value) && value.get_double().value() == 0; }

// Small values whole, containers with their content: a difference in length shows what is there.
template <typename Value>
std::string Show(const Value& value) {
  constexpr std::size_t kMostShown = 160;
  const std::string text = simdjson::minify(value);
  return text.size() <= kMostShown ? text : text.substr(0, kMostShown) + "...";
}

}  // namespace

void CompareCount::Add(const CompareCount& other) {
  compared += other.compared;
  for (const auto& [name, count] : other.left_out) left_out[name] += count;
}

std::optional<Difference> JsonComparer::Compare(std::string_view op, element expected,
                                                element actual) {
  path_.assign(1, op);
  is_place_.assign(1, false);
  difference_.reset();
  CompareValue(expected, actual);
  return std::exchange(difference_, std::nullopt);
}

bool JsonComparer::Report(std::string expected, std::string actual) {
  std::string path;
  for (std::size_t i = 1; i < path_.size(); ++i) {
    if (is_place_[i]) {
      path.append("[").append(path_[i]).append("]");
    } else {
      if (!path.empty()) path.push_back('.');
      path.append(path_[i]);
    }
  }
  difference_ = Difference{std::move(path), std::move(expected), std::move(actual)};
  return false;
}

// Whether the value at the path is left out.
bool JsonComparer::Skips(std::string_view name) {
  const bool ignored = !is_place_.back() && options_.ignored_keys.contains(name);
  if (!ignored && (options_.level == Level::kBlocks || LevelOf(path_) <= options_.level))
    return false;
  if (is_place_.back()) {
    // An array's element has no name of its own.
    std::string of(path_[path_.size() - 3]);
    ++count_.left_out[of.append("[][").append(name).append("]")];
  } else {
    ++count_.left_out[std::string(name)];
  }
  return true;
}

bool JsonComparer::CompareObject(object expected, object actual) {
  for (const auto& field : expected) {
    path_.push_back(field.key);
    is_place_.push_back(false);
    if (!Skips(field.key)) {
      element value;
      if (actual.at_key(field.key).get(value) != simdjson::SUCCESS)
        return Report(Show(field.value), "nothing");
      if (!CompareValue(field.value, value)) return false;
    }
    path_.pop_back();
    is_place_.pop_back();
  }
  if (!options_.strict && path_.back() != "metrics" && path_.back() != "prefill") return true;
  for (const auto& field : actual) {
    element value;
    if (expected.at_key(field.key).get(value) == simdjson::SUCCESS || field.key == "group")
      continue;
    path_.push_back(field.key);
    is_place_.push_back(false);
    if (!Skips(field.key) && !(!options_.strict && IsZero(field.value)))
      return Report("nothing", Show(field.value));
    path_.pop_back();
    is_place_.pop_back();
  }
  return true;
}

bool JsonComparer::CompareArray(array expected, array actual) {
  auto other = actual.begin();
  std::size_t place = 0;
  for (const element value : expected) {
    if (other == actual.end()) break;
    while (places_.size() <= place) places_.push_back(std::to_string(places_.size()));
    path_.push_back(places_[place]);
    is_place_.push_back(true);
    if (!Skips(places_[place]) && !CompareValue(value, *other)) return false;
    path_.pop_back();
    is_place_.pop_back();
    ++other;
    ++place;
  }
  if (expected.size() != actual.size()) {
    return Report(std::to_string(expected.size()) + " entries: " + Show(expected),
                  std::to_string(actual.size()) + " entries: " + Show(actual));
  }
  return true;
}

bool JsonComparer::CompareValue(element expected, element actual) {
  if (expected.is_object() && actual.is_object())
    return CompareObject(expected.get_object(), actual.get_object());
  if (expected.is_array() && actual.is_array())
    return CompareArray(expected.get_array(), actual.get_array());
  ++count_.compared;
  if (IsNumber(expected) && IsNumber(actual)) {
    return SameNumber(expected, actual) || Report(Show(expected), Show(actual));
  }
  bool same = expected.type() == actual.type();
  if (same && expected.type() == element_type::STRING) {
    same = expected.get_string().value() == actual.get_string().value();
  } else if (same && expected.type() == element_type::BOOL) {
    same = expected.get_bool().value() == actual.get_bool().value();
  }
  return same || Report(Show(expected), Show(actual));
}

}  // namespace tally
