// Reads the configuration of a trace's header (conformance/trace_format.md) into an engine's.
#ifndef TALLY_ENGINE_PROTOCOL_CONFIG_PARSER_H_
#define TALLY_ENGINE_PROTOCOL_CONFIG_PARSER_H_

#include <optional>

#include "absl/status/statusor.h"
#include "engine/connector/connector_config.h"
#include "engine/core/engine_config.h"
#include "simdjson.h"

namespace tally {

struct TraceConfig {
  EngineConfig engine;
  std::optional<ConnectorConfig> connector;
};

// `defaults` gives what the format does not say: behaviour, hash algorithm and seed. Unknown keys
// are refused by name.
absl::StatusOr<TraceConfig> ParseConfig(simdjson::dom::object object, const EngineConfig& defaults);

}  // namespace tally

#endif  // TALLY_ENGINE_PROTOCOL_CONFIG_PARSER_H_
