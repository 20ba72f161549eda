// A progress bar on standard error, drawn only if that is a terminal.
#ifndef TALLY_ENGINE_CLI_PROGRESS_BAR_H_
#define TALLY_ENGINE_CLI_PROGRESS_BAR_H_

#include <chrono>
#include <string>
#include <string_view>

namespace tally {

class ProgressBar {
 public:
  ProgressBar();
  // Clears the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws at most ten times a second. The part that is done is 0 to 1.
  void Show(double fraction, std::string_view note);

  // The bar's text for a line of `width` columns.
  static std::string Render(double fraction, std::string_view note, std::size_t width);

 private:
  const bool is_terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CLI_PROGRESS_BAR_H_
