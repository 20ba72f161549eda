#include "engine/cli/paths.h"

#include <cstdlib>

namespace tally {

std::string ResolvePath(const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (folder == nullptr || *folder == '\0') return path;
  return std::string(folder) + "/" + path;
}

}  // namespace tally
