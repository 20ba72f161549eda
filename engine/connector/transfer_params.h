// Reading a client's transfer parameters (`kv_transfer_params`): a JSON object of which each
// connector knows some keys.
#ifndef TALLY_ENGINE_CONNECTOR_TRANSFER_PARAMS_H_
#define TALLY_ENGINE_CONNECTOR_TRANSFER_PARAMS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/types.h"

namespace tally {

// `fallback` for a key that is absent or null. InvalidArgument "kv.<where>.<key>: <value>, wanted
// ..." for a value of another type or out of range.
absl::StatusOr<bool> BoolParam(const nlohmann::json& params, std::string_view where,
                               std::string_view key, bool fallback);
absl::StatusOr<std::int64_t> IntParam(const nlohmann::json& params, std::string_view where,
                                      std::string_view key,
                                      std::pair<std::int64_t, std::int64_t> range,
                                      std::int64_t fallback);

// Whether a key is there with a value that is not empty, zero, false or null.
bool IsTruthy(const nlohmann::json& params, std::string_view key);

// Block ids as the trace format writes them: a list a group.
nlohmann::json BlockIdsToJson(const std::vector<BlockId>& blocks);
nlohmann::json BlockIdsToJson(const std::vector<std::vector<BlockId>>& groups);

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_TRANSFER_PARAMS_H_
