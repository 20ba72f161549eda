#include "engine/cli/engine_command.h"
int main(int argc, char** argv) {
  CLI::App app("Tally");
  app.require_subcommand(1);
  std::function<int()> run;
  tally::AddEngineCommand(app, run);
  CLI11_PARSE(app, argc, argv);
  return run ? run() : 1;
}
