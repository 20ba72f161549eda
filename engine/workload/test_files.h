// Files for tests: temporary ones, and the public traces beside the repository.
#ifndef TALLY_ENGINE_WORKLOAD_TEST_FILES_H_
#define TALLY_ENGINE_WORKLOAD_TEST_FILES_H_

#include <string>
#include <string_view>

namespace tally {

// Writes `bytes` to a file of the running test's own and answers its path.
std::string WriteTestFile(std::string_view name, std::string_view bytes);
// The same, compressed.
std::string WriteGzipTestFile(std::string_view name, std::string_view bytes);
std::string Gzip(std::string_view bytes);

// The path of a file of ../shared/traces, as seen from the repository's root; empty where there is
// none, and then the test is to be skipped.
std::string SharedTrace(std::string_view name);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_TEST_FILES_H_
