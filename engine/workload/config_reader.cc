#include "engine/workload/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace tally {
namespace {

// A value in a message: its JSON text, cut to a sensible length.
std::string Show(const nlohmann::json& value) {
  std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  constexpr std::size_t kMost = 60;
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseConfig(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of the objects around the place that is parsed
  std::optional<std::string> repeated;
  const auto watch = [&](int /*depth*/, nlohmann::json::parse_event_t event,
                         nlohmann::json& parsed) {
    switch (event) {
      case nlohmann::json::parse_event_t::object_start:
        keys.emplace_back();
        break;
      case nlohmann::json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case nlohmann::json::parse_event_t::key:
        if (!keys.back().insert(parsed.get<std::string>()).second && !repeated.has_value()) {
          repeated = parsed.get<std::string>();
        }
        break;
      default:
        break;
    }
    return true;
  };
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string message = error.what();
    const std::size_t begin = message.find("] ");
    return absl::InvalidArgumentError(begin == std::string::npos ? message
                                                                 : message.substr(begin + 2));
  }
  if (repeated.has_value()) {
    return absl::InvalidArgumentError(fmt::format("{}: twice, wanted it once", *repeated));
  }
  return json;
}

ConfigReader::ConfigReader(const nlohmann::json& json, std::string_view path)
    : json_(json), path_(path) {
  if (!json.is_object()) {
    status_ = absl::InvalidArgumentError(fmt::format(
        "{}: {}, wanted an object", path_.empty() ? "the configuration" : path_, Show(json)));
  }
}

std::string ConfigReader::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const nlohmann::json* ConfigReader::Find(std::string_view key) {
  known_.emplace_back(key);
  if (!status_.ok()) return nullptr;
  const auto found = json_.find(std::string(key));
  return found == json_.end() ? nullptr : &*found;
}

void ConfigReader::Wanted(std::string_view key, const nlohmann::json& value,
                          std::string_view what) {
  status_.Update(
      absl::InvalidArgumentError(fmt::format("{}: {}, wanted {}", PathOf(key), Show(value), what)));
}

void ConfigReader::Integer(std::string_view key, std::int64_t least, std::int64_t most,
                           std::optional<std::int32_t>& value) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  // Numbers beyond 64 bits are read as floating point, larger than 63 bits as unsigned.
  const bool fits = found->is_number_integer() &&
                    (!found->is_number_unsigned() ||
                     found->get<std::uint64_t>() <= static_cast<std::uint64_t>(most));
  if (!fits || found->get<std::int64_t>() < least || found->get<std::int64_t>() > most) {
    Wanted(key, *found, fmt::format("an integer from {} to {}", least, most));
    return;
  }
  value = static_cast<std::int32_t>(found->get<std::int64_t>());
}

void ConfigReader::Number(std::string_view key, double above, double most,
                          std::optional<double>& value) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  if (!found->is_number() || !(found->get<double>() > above) || found->get<double>() > most) {
    Wanted(key, *found, fmt::format("a number above {} and up to {}", above, most));
    return;
  }
  value = found->get<double>();
}

void ConfigReader::NumberFromZero(std::string_view key, double most, std::optional<double>& value) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  if (!found->is_number() || !(found->get<double>() >= 0) || found->get<double>() > most) {
    Wanted(key, *found, fmt::format("a number from 0 to {}", most));
    return;
  }
  value = found->get<double>();
}

void ConfigReader::Flag(std::string_view key, std::optional<bool>& value) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  if (!found->is_boolean()) {
    Wanted(key, *found, "true or false");
    return;
  }
  value = found->get<bool>();
}

void ConfigReader::Text(std::string_view key, const std::vector<std::string>& choices,
                        std::optional<std::string>& value) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  if (!found->is_string()) {
    Wanted(key, *found, choices.empty() ? "a string" : fmt::format("{}", fmt::join(choices, ", ")));
    return;
  }
  const std::string text = found->get<std::string>();
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
    Wanted(key, *found, fmt::format("one of {}", fmt::join(choices, ", ")));
    return;
  }
  value = text;
}

const nlohmann::json* ConfigReader::Any(std::string_view key) { return Find(key); }

absl::Status ConfigReader::Finish() const {
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : json_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      return absl::InvalidArgumentError(fmt::format("{}: {}, an unknown key, wanted one of {}",
                                                    PathOf(key), Show(value),
                                                    fmt::join(known_, ", ")));
    }
  }
  return absl::OkStatus();
}

}  // namespace tally
