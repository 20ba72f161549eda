#include "engine/connector/connector_config.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/connector/multi_connector.h"
#include "engine/connector/nixl_connector.h"
#include "engine/connector/scripted_connector.h"

namespace tally {
namespace {

// `place` among the children of a multi connector; empty for the outermost one.
std::unique_ptr<KvConnector> Create(const ConnectorConfig& config, const std::string& place) {
  switch (config.type) {
    case ConnectorConfig::Type::kScripted:
      return std::make_unique<ScriptedConnector>("scripted" + place);
    case ConnectorConfig::Type::kNixl:
      return std::make_unique<NixlConnector>();
    case ConnectorConfig::Type::kOffloading:
      return std::make_unique<OffloadingConnector>(config.offloading);
    case ConnectorConfig::Type::kMulti: {
      std::vector<std::unique_ptr<KvConnector>> children;
      for (std::size_t i = 0; i < config.children.size(); ++i)
        children.push_back(Create(config.children[i], absl::StrCat(i)));
      return std::make_unique<MultiConnector>(std::move(children));
    }
  }
  TALLY_CHECK(false, "connector type %d", static_cast<int>(config.type));
}

}  // namespace

std::unique_ptr<KvConnector> CreateConnector(const ConnectorConfig& config) {
  return Create(config, "");
}

}  // namespace tally
