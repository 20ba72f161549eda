// Serves the protocol on a stream of lines: each command is one line, each answer too.
#ifndef TALLY_ENGINE_PROTOCOL_PROTOCOL_SERVER_H_
#define TALLY_ENGINE_PROTOCOL_PROTOCOL_SERVER_H_

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "engine/protocol/line_reader.h"
#include "engine/protocol/protocol_engine.h"

namespace tally {

// Takes bytes of answers; a status when nobody takes them any more.
using ByteSink = std::function<absl::Status(std::string_view bytes)>;

// Answers every line until the source ends, whatever the lines hold; empty lines are passed over.
// All answers so far are given to the sink before the source is asked for more, so a peer that
// waits for an answer gets it. A status of the source or the sink ends the service.
absl::Status ServeProtocol(ProtocolEngine& engine, LineReader::Source source, const ByteSink& sink);

}  // namespace tally

#endif  // TALLY_ENGINE_PROTOCOL_PROTOCOL_SERVER_H_
