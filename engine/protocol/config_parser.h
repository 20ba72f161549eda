// Reads the configuration of a trace's header (conformance/trace_format.md) into an engine's.
#ifndef TALLY_ENGINE_PROTOCOL_CONFIG_PARSER_H_
#define TALLY_ENGINE_PROTOCOL_CONFIG_PARSER_H_

#include "absl/status/statusor.h"
#include "engine/core/engine_config.h"
#include "simdjson.h"

namespace tally {

// `defaults` gives what the format does not say: behaviour, hash algorithm and seed. Keys of parts
// that are not built are refused by name, as are unknown ones.
absl::StatusOr<EngineConfig> ParseConfig(simdjson::dom::object object,
                                         const EngineConfig& defaults);

}  // namespace tally

#endif  // TALLY_ENGINE_PROTOCOL_CONFIG_PARSER_H_
