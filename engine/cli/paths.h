// File names as a user gives them on the command line.
#ifndef TALLY_ENGINE_CLI_PATHS_H_
#define TALLY_ENGINE_CLI_PATHS_H_

#include <string>

namespace tally {

// `bazel run` starts programs in a folder of its own and says in BUILD_WORKING_DIRECTORY where the
// user stands: a relative path is meant from there. Other paths stay as they are.
std::string ResolvePath(const std::string& path);

}  // namespace tally

#endif  // TALLY_ENGINE_CLI_PATHS_H_
