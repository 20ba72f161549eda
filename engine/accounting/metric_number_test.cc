#include "engine/accounting/metric_number.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

namespace tally {
namespace {

// metrics.md EXF-3.
TEST(MetricNumberTest, FollowsPythonAndThenPrometheus) {
  EXPECT_EQ(MetricNumber(0), "0.0");
  EXPECT_EQ(MetricNumber(-0.0), "-0.0");
  EXPECT_EQ(MetricNumber(2), "2.0");
  EXPECT_EQ(MetricNumber(0.25), "0.25");
  EXPECT_EQ(MetricNumber(0.001), "0.001");
  EXPECT_EQ(MetricNumber(0.0001), "0.0001");
  EXPECT_EQ(MetricNumber(0.00001), "1e-05");
  EXPECT_EQ(MetricNumber(1.5e-10), "1.5e-10");
  EXPECT_EQ(MetricNumber(999999), "999999.0");
  EXPECT_EQ(MetricNumber(123456.75), "123456.75");
  EXPECT_EQ(MetricNumber(1000000), "1e+06");
  EXPECT_EQ(MetricNumber(1500000), "1.5e+06");
  EXPECT_EQ(MetricNumber(1234567.5), "1.2345675e+06");
  EXPECT_EQ(MetricNumber(1e100), "1e+100");
  EXPECT_EQ(MetricNumber(-1500000), "-1500000.0");
  EXPECT_EQ(MetricNumber(-1e16), "-1e+16");
  EXPECT_EQ(MetricNumber(std::numeric_limits<double>::infinity()), "+Inf");
  EXPECT_EQ(MetricNumber(-std::numeric_limits<double>::infinity()), "-Inf");
  EXPECT_EQ(MetricNumber(std::numeric_limits<double>::quiet_NaN()), "NaN");
}

TEST(MetricNumberTest, ReadsBackAsTheSameValue) {
  for (const double value :
       {0.1, 1.0 / 3, 1e-300, 123456789.123, 0.30000000000000004, 1.7976931348623157e308}) {
    EXPECT_EQ(std::strtod(MetricNumber(value).c_str(), nullptr), value) << MetricNumber(value);
  }
}

}  // namespace
}  // namespace tally
