// `tally replay`: replays a workload and prints what happened.
#ifndef TALLY_ENGINE_CLI_REPLAY_COMMAND_H_
#define TALLY_ENGINE_CLI_REPLAY_COMMAND_H_

#include <CLI/CLI.hpp>

#include "engine/cli/command.h"

namespace tally {

void AddReplayCommand(CLI::App& app, CommandRunner& run);

}  // namespace tally

#endif  // TALLY_ENGINE_CLI_REPLAY_COMMAND_H_
