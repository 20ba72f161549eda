// A subcommand of the program `tally`. Each stands in a file of its own with a function
//
//   void AddXCommand(CLI::App& app, CommandRunner& run);
//
// which adds the subcommand and its options to `app`, and has `run` set, when the subcommand is
// named on the command line, to what carries it out and answers the program's exit code. main.cc
// calls each such function once.
#ifndef TALLY_ENGINE_CLI_COMMAND_H_
#define TALLY_ENGINE_CLI_COMMAND_H_

#include <functional>

namespace tally {

using CommandRunner = std::function<int()>;

// Exit codes of all subcommands.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;  // input can't be read or is broken, output can't be written
inline constexpr int kExitUsage = 2;    // a wrong command line or configuration
inline constexpr int kExitInterrupted = 130;  // by SIGINT; as a shell reports it

}  // namespace tally

#endif  // TALLY_ENGINE_CLI_COMMAND_H_
