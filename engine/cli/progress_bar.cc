#include "engine/cli/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tally {
namespace {

std::size_t TerminalWidth() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

ProgressBar::ProgressBar() : is_terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::Show(double fraction, std::string_view note) {
  if (!is_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  drawn_ = true;
  last_ = now;
  fmt::print(stderr, "\r\033[K{}", Render(fraction, note, TerminalWidth()));
  std::fflush(stderr);
}

std::string ProgressBar::Render(double fraction, std::string_view note, std::size_t width) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  const std::string tail = fmt::format(" {:3.0f} %  {}", 100 * fraction, note);
  // A terminal too narrow for a bar gets the figures; the last column is left free, where some
  // terminals would begin a new line.
  if (width < tail.size() + 12) return tail.substr(0, width > 0 ? width - 1 : 0);
  const std::size_t room = std::min<std::size_t>(width - tail.size() - 3, 40);
  const auto full = static_cast<std::size_t>(fraction * static_cast<double>(room));
  return "[" + std::string(full, '#') + std::string(room - full, '.') + "]" + tail;
}

}  // namespace tally
