// The program `tally`: everything it can do is a subcommand.
#include <CLI/CLI.hpp>

#include "engine/cli/command.h"
#include "engine/cli/engine_command.h"
#include "engine/cli/replay_command.h"

int main(int argc, char** argv) {
  CLI::App app("Tally: a scheduling core for LLM serving that accounts for every token.", "tally");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Print the help of all subcommands");
  app.footer(
      "Exit codes: 0 done, 1 input can't be read or output can't be written, 2 wrong usage or "
      "configuration, 130 interrupted.");

  tally::CommandRunner run;
  tally::AddReplayCommand(app, run);
  tally::AddEngineCommand(app, run);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? tally::kExitOk : tally::kExitUsage;
  }
  return run();
}
