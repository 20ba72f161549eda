// An engine in a process of its own, spoken to by the trace format over its standard input and
// output.
//
// Whatever the process does is a result: one that ends, hangs, or answers what is no JSON object is
// answered for with {"error":"EngineExited"|"EngineTimeout"|"EngineAnswer","message":...}, which no
// recording holds, and is started again with the next command.
#ifndef TALLY_CONFORMANCE_PROCESS_ENGINE_H_
#define TALLY_CONFORMANCE_PROCESS_ENGINE_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>

#include "conformance/trace_engine.h"

namespace tally {

class ProcessEngine final : public TraceEngine {
 public:
  struct Options {
    std::string command;                        // for the shell
    std::chrono::milliseconds timeout{30'000};  // of one command
    std::size_t max_answer_bytes = std::size_t{256} << 20;
  };
  explicit ProcessEngine(Options options) : options_(std::move(options)) {}
  ~ProcessEngine() override { Stop(); }
  ProcessEngine(const ProcessEngine&) = delete;
  ProcessEngine& operator=(const ProcessEngine&) = delete;

  // A status only when no process can be made.
  absl::StatusOr<std::string_view> Answer(std::string_view command) override;

  // Processes that were started so far.
  int num_starts() const { return num_starts_; }

 private:
  absl::Status Start();
  // Kills the process with all that it started; answers how it had ended, in words.
  std::string Stop();
  bool Send(std::string_view line, std::chrono::steady_clock::time_point deadline);
  std::string_view Fail(std::string_view kind, std::string_view message);

  const Options options_;
  pid_t process_ = -1;
  int socket_ = -1;
  int num_starts_ = 0;
  std::string buffer_;  // what was read behind the last answer
  std::string answer_;
};

}  // namespace tally

#endif  // TALLY_CONFORMANCE_PROCESS_ENGINE_H_
