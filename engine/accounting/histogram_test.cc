#include "engine/accounting/histogram.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tally {
namespace {

std::vector<std::int64_t> Counts(const Histogram& histogram) {
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < histogram.num_buckets(); ++i) counts.push_back(histogram.count_in(i));
  return counts;
}

TEST(HistogramTest, ABoundBelongsToItsBucket) {
  Histogram histogram(std::vector<double>{0.25, 1, 2});
  for (const double value : {0.25, 0.26, -3.0, 1.0, 2.0, 2.5, 1e9}) histogram.Observe(value);
  EXPECT_EQ(Counts(histogram), (std::vector<std::int64_t>{2, 2, 1, 2}));
  EXPECT_EQ(histogram.count(), 7);
  EXPECT_DOUBLE_EQ(histogram.sum(), 0.25 + 0.26 - 3 + 1 + 2 + 2.5 + 1e9);
  EXPECT_EQ(histogram.bound_text(0), "0.25");
  EXPECT_EQ(histogram.bound_text(3), "+Inf");
}

TEST(HistogramTest, NotANumberGoesToTheSumOnly) {
  Histogram histogram(std::vector<double>{1});
  histogram.Observe(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(Counts(histogram), (std::vector<std::int64_t>{0, 0}));
  EXPECT_NE(histogram.sum(), histogram.sum());
}

// metrics.md BK-1.
TEST(TokenBucketsTest, GoUpToTheLargestThatIsNotAbove) {
  EXPECT_EQ(buckets::Tokens(0), std::vector<double>{});
  EXPECT_EQ(buckets::Tokens(1), std::vector<double>{1});
  EXPECT_EQ(buckets::Tokens(7), (std::vector<double>{1, 2, 5}));
  EXPECT_EQ(buckets::Tokens(100).back(), 100);
  EXPECT_EQ(buckets::Tokens(2048).back(), 2000);
  EXPECT_EQ(buckets::Tokens(8192).back(), 5000);
  EXPECT_EQ(buckets::Tokens(131072).back(), 100000);
  EXPECT_EQ(buckets::Tokens(131072).size(), 16U);
}

}  // namespace
}  // namespace tally
