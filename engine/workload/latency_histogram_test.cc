#include "engine/workload/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/workload/random.h"

namespace tally {
namespace {

TEST(LatencyHistogramTest, PercentilesAreWithinTheDocumentedError) {
  Random random(1);
  LatencyHistogram histogram;
  std::vector<double> values;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(random.LogNormal(0.01, 3));
    histogram.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double quantile : {0.0001, 0.01, 0.5, 0.9, 0.99, 0.9999, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(quantile * 20'000)) - 1;
    EXPECT_NEAR(histogram.Percentile(quantile) / values[rank], 1, 0.004) << quantile;
  }
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_EQ(histogram.count(), 20'000);
}

TEST(LatencyHistogramTest, Extremes) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Percentile(0.5), 0);
  EXPECT_EQ(histogram.mean(), 0);
  histogram.Add(0);
  EXPECT_EQ(histogram.Percentile(0.99), 0);
  histogram.Add(1e30);
  EXPECT_NEAR(histogram.Percentile(1) / 0x1p33, 1, 0.004);
  EXPECT_EQ(histogram.Percentile(0.5), 0);
  EXPECT_EQ(histogram.max(), 1e30);
}

TEST(LatencyHistogramTest, OneValue) {
  LatencyHistogram histogram;
  histogram.Add(0.25);
  EXPECT_EQ(histogram.Percentile(0.5), 0.25) << "never above the largest value";
  EXPECT_EQ(histogram.mean(), 0.25);
}

}  // namespace
}  // namespace tally
