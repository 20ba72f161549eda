// Which connector an engine uses, and how it is made.
#ifndef TALLY_ENGINE_CONNECTOR_CONNECTOR_CONFIG_H_
#define TALLY_ENGINE_CONNECTOR_CONNECTOR_CONFIG_H_

#include <memory>
#include <vector>

#include "engine/connector/offloading_connector.h"
#include "engine/core/kv_connector.h"

namespace tally {

struct ConnectorConfig {
  enum class Type : std::uint8_t { kScripted, kNixl, kOffloading, kMulti };

  Type type = Type::kScripted;
  OffloadingConnector::Options offloading;  // of kOffloading
  std::vector<ConnectorConfig> children;    // of kMulti
};

std::unique_ptr<KvConnector> CreateConnector(const ConnectorConfig& config);

}  // namespace tally

#endif  // TALLY_ENGINE_CONNECTOR_CONNECTOR_CONFIG_H_
