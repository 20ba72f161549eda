#include "conformance/process_engine.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/protocol/json_writer.h"

namespace tally {
namespace {

using Clock = std::chrono::steady_clock;

// Waits until the socket is ready for `events`; false at the deadline.
bool Ready(int socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wanted{.fd = socket, .events = events, .revents = 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::min<long long>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

absl::Status ProcessEngine::Start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::UnavailableError(absl::StrCat("socketpair: ", std::strerror(errno)));
  process_ = ::fork();
  if (process_ < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return absl::UnavailableError(absl::StrCat("fork: ", std::strerror(errno)));
  }
  if (process_ == 0) {
    ::setpgid(0, 0);  // so that all it starts can be ended with it
    ::dup2(ends[1], STDIN_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    ::execl("/bin/sh", "sh", "-c", options_.command.c_str(), nullptr);
    ::_exit(127);
  }
  ::setpgid(process_, process_);
  ::close(ends[1]);
  socket_ = ends[0];
  ::fcntl(socket_, F_SETFL, O_NONBLOCK);
  buffer_.clear();
  ++num_starts_;
  return absl::OkStatus();
}

std::string ProcessEngine::Stop() {
  if (process_ < 0) return "";
  ::close(socket_);
  int status = 0;
  // One that is ending by itself may say how.
  bool ended = false;
  for (int i = 0; i < 20 && !ended; ++i) {
    ended = ::waitpid(process_, &status, WNOHANG) == process_;
    if (!ended) ::usleep(5000);
  }
  ::kill(-process_, SIGKILL);
  if (!ended) ::waitpid(process_, &status, 0);
  process_ = socket_ = -1;
  if (!ended) return "killed";
  if (WIFSIGNALED(status)) return absl::StrCat("signal ", WTERMSIG(status));
  return absl::StrCat("exit status ", WEXITSTATUS(status));
}

bool ProcessEngine::Send(std::string_view line, Clock::time_point deadline) {
  while (!line.empty()) {
    const ssize_t count = ::send(socket_, line.data(), line.size(), MSG_NOSIGNAL);
    if (count > 0) {
      line.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!Ready(socket_, POLLOUT, deadline)) return false;
    } else if (errno != EINTR) {
      return true;  // it ended: reading tells
    }
  }
  return true;
}

std::string_view ProcessEngine::Fail(std::string_view kind, std::string_view message) {
  answer_.clear();
  JsonWriter(answer_)
      .BeginObject()
      .Key("error")
      .String(kind)
      .Key("message")
      .String(message)
      .EndObject();
  return answer_;
}

absl::StatusOr<std::string_view> ProcessEngine::Answer(std::string_view command) {
  if (process_ < 0) {
    if (absl::Status status = Start(); !status.ok()) return status;
  }
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  const std::string line = absl::StrCat(std::string(command), "\n");
  if (!Send(line, deadline)) {
    Stop();
    return Fail("EngineTimeout", "it does not read");
  }
  std::size_t searched = 0;
  for (;;) {
    const std::size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      answer_.assign(buffer_, 0, end);
      buffer_.erase(0, end + 1);
      const std::size_t first = answer_.find_first_not_of(" \t\r");
      if (first != std::string::npos && answer_[first] == '{') return answer_;
      Stop();  // nobody knows which answer belongs to which command any more
      return Fail("EngineAnswer", absl::StrCat("no JSON object, ", answer_.size(), " bytes"));
    }
    searched = buffer_.size();
    if (buffer_.size() > options_.max_answer_bytes) {
      Stop();
      return Fail("EngineAnswer",
                  absl::StrCat("longer than ", options_.max_answer_bytes, " bytes"));
    }
    if (!Ready(socket_, POLLIN, deadline)) {
      Stop();
      return Fail("EngineTimeout",
                  absl::StrCat("no answer within ", options_.timeout.count(), " ms"));
    }
    char chunk[1 << 16];
    const ssize_t count = ::recv(socket_, chunk, sizeof(chunk), 0);
    if (count > 0) {
      buffer_.append(chunk, static_cast<std::size_t>(count));
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      return Fail("EngineExited", Stop());
    }
  }
}

}  // namespace tally
