// The subcommand `tally engine`: an engine that speaks the trace format on standard input and
// output.
#ifndef TALLY_ENGINE_CLI_ENGINE_COMMAND_H_
#define TALLY_ENGINE_CLI_ENGINE_COMMAND_H_

#include <functional>

#include "CLI/CLI.hpp"

namespace tally {

// Adds the subcommand to `app`; when it is the one given, `run` becomes the function that executes
// it and answers the exit status: 0 at the end of input, 1 when input or output fails.
void AddEngineCommand(CLI::App& app, std::function<int()>& run);

}  // namespace tally

#endif  // TALLY_ENGINE_CLI_ENGINE_COMMAND_H_
