#include "engine/cli/progress_bar.h"

#include <gtest/gtest.h>

#include <string>

namespace tally {
namespace {

TEST(ProgressBarTest, FillsTheLine) {
  EXPECT_EQ(ProgressBar::Render(0, "n", 40), "[" + std::string(28, '.') + "]   0 %  n");
  EXPECT_EQ(ProgressBar::Render(1, "n", 40), "[" + std::string(28, '#') + "] 100 %  n");
  EXPECT_EQ(ProgressBar::Render(0.5, "n", 200),
            "[" + std::string(20, '#') + std::string(20, '.') + "]  50 %  n");
}

TEST(ProgressBarTest, StaysWithinTheTerminal) {
  for (std::size_t width = 1; width < 120; ++width) {
    const std::string bar =
        ProgressBar::Render(0.3, "12 requests done, 5 s of virtual time", width);
    EXPECT_LT(bar.size(), width);
  }
  EXPECT_EQ(ProgressBar::Render(0.3, "note", 0), "");
}

TEST(ProgressBarTest, FractionsOutOfRange) {
  EXPECT_EQ(ProgressBar::Render(-1, "n", 40), ProgressBar::Render(0, "n", 40));
  EXPECT_EQ(ProgressBar::Render(7, "n", 40), ProgressBar::Render(1, "n", 40));
}

}  // namespace
}  // namespace tally
