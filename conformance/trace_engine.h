// What a replay drives: anything that answers the commands of the trace format.
#ifndef TALLY_CONFORMANCE_TRACE_ENGINE_H_
#define TALLY_CONFORMANCE_TRACE_ENGINE_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/protocol/protocol_engine.h"

namespace tally {

class TraceEngine {
 public:
  virtual ~TraceEngine() = default;

  // Answers one command with one JSON object; the answer lives until the next call. A status means
  // that there is no engine any more, not that the command was refused.
  virtual absl::StatusOr<std::string_view> Answer(std::string_view command) = 0;
};

// Tally in this process.
class InProcessEngine : public TraceEngine {
 public:
  explicit InProcessEngine(const EngineConfig& defaults) : engine_(defaults) {}

  absl::StatusOr<std::string_view> Answer(std::string_view command) override {
    return engine_.Answer(command);
  }

 private:
  ProtocolEngine engine_;
};

}  // namespace tally

#endif  // TALLY_CONFORMANCE_TRACE_ENGINE_H_
