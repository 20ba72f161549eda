// Reads a JSON object of named settings, and refuses what it does not know with a message that
// names the key's path, the value and what was expected.
#ifndef TALLY_ENGINE_WORKLOAD_CONFIG_READER_H_
#define TALLY_ENGINE_WORKLOAD_CONFIG_READER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tally {

// Parses a JSON text. InvalidArgument names line and column of a syntax error, or a key that occurs
// twice in an object.
absl::StatusOr<nlohmann::json> ParseConfig(std::string_view text);

// Usage:
//   ConfigReader reader(json, "step_time");
//   reader.Integer("block_size", 1, 1024, settings.block_size);
//   return reader.Finish();
class ConfigReader {
 public:
  // `path` is where the object stands; empty for the whole file. An error when it is no object.
  ConfigReader(const nlohmann::json& json, std::string_view path);

  // Each reads one key, if it is there. After an error the rest does nothing.
  void Integer(std::string_view key, std::int64_t least, std::int64_t most,
               std::optional<std::int32_t>& value);
  // A number above `above` and up to `most`.
  void Number(std::string_view key, double above, double most, std::optional<double>& value);
  // A number from 0 to `most`.
  void NumberFromZero(std::string_view key, double most, std::optional<double>& value);
  void Flag(std::string_view key, std::optional<bool>& value);
  // One of `choices`, or any string if there are none.
  void Text(std::string_view key, const std::vector<std::string>& choices,
            std::optional<std::string>& value);
  // The value as it stands, or null.
  const nlohmann::json* Any(std::string_view key);

  // Reports an error about a key's value.
  void Wanted(std::string_view key, const nlohmann::json& value, std::string_view what);

  // The first error; also for keys that nobody asked for.
  absl::Status Finish() const;

 private:
  const nlohmann::json* Find(std::string_view key);
  std::string PathOf(std::string_view key) const;

  const nlohmann::json& json_;
  const std::string path_;
  std::vector<std::string> known_;
  absl::Status status_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_CONFIG_READER_H_
