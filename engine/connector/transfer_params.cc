#include "engine/connector/transfer_params.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

absl::Status WrongParam(std::string_view where, std::string_view key, const nlohmann::json& value,
                        std::string_view wanted) {
  constexpr std::size_t kMostText = 80;
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMostText) text = text.substr(0, kMostText) + "...";
  return absl::InvalidArgumentError(absl::StrCat("kv", where.empty() ? "" : ".", std::string(where),
                                                 ".", std::string(key), ": ", text, ", wanted ",
                                                 std::string(wanted)));
}

// The value of a key that is there and not null.
const nlohmann::json* Find(const nlohmann::json& params, std::string_view key) {
  if (!params.is_object()) return nullptr;
  const auto found = params.find(std::string(key));
  return found == params.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

absl::StatusOr<bool> BoolParam(const nlohmann::json& params, std::string_view where,
                               std::string_view key, bool fallback) {
  const nlohmann::json* value = Find(params, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return WrongParam(where, key, *value, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::int64_t> IntParam(const nlohmann::json& params, std::string_view where,
                                      std::string_view key,
                                      std::pair<std::int64_t, std::int64_t> range,
                                      std::int64_t fallback) {
  const nlohmann::json* value = Find(params, key);
  if (value == nullptr) return fallback;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<std::uint64_t>() <= static_cast<std::uint64_t>(range.second)) &&
                    value->get<std::int64_t>() >= range.first &&
                    value->get<std::int64_t>() <= range.second;
  if (!fits) {
    return WrongParam(where, key, *value,
                      absl::StrCat("an integer from ", range.first, " to ", range.second));
  }
  return value->get<std::int64_t>();
}

bool IsTruthy(const nlohmann::json& params, std::string_view key) {
  const nlohmann::json* value = Find(params, key);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  if (value->is_number()) return value->get<double>() != 0;
  if (value->is_string()) return !value->get_ref<const std::string&>().empty();
  return !value->empty();
}

nlohmann::json BlockIdsToJson(const std::vector<BlockId>& blocks) {
  nlohmann::json list = nlohmann::json::array();
  for (const BlockId block : blocks) list.push_back(Index(block));
  return list;
}

nlohmann::json BlockIdsToJson(const std::vector<std::vector<BlockId>>& groups) {
  nlohmann::json list = nlohmann::json::array();
  for (const std::vector<BlockId>& blocks : groups) list.push_back(BlockIdsToJson(blocks));
  return list;
}

}  // namespace tally
