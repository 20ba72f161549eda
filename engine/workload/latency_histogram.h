// Percentiles of latencies in a fixed amount of memory.
//
// A value is counted in a bucket that spans 1/128 of its power of two: percentiles are at most 0.4
// % off. Values below a nanosecond count as zero, values above 2^33 s (272 years) as that.
#ifndef TALLY_ENGINE_WORKLOAD_LATENCY_HISTOGRAM_H_
#define TALLY_ENGINE_WORKLOAD_LATENCY_HISTOGRAM_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/base/types.h"

namespace tally {

class LatencyHistogram {
 public:
  LatencyHistogram() : counts_(kNumBuckets, 0) {}

  // O(1). Wants a value that is a number and not negative.
  void Add(Seconds value) {
    ++counts_[BucketOf(value)];
    ++count_;
    sum_ += value;
    max_ = std::max(max_, value);
  }

  std::int64_t count() const { return count_; }
  Seconds mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  Seconds max() const { return max_; }

  // The smallest value that at least the share `quantile` (0 to 1) of all values does not exceed; 0
  // when there are none. O(buckets).
  Seconds Percentile(double quantile) const {
    if (count_ == 0) return 0;
    const auto rank = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(std::ceil(quantile * static_cast<double>(count_))));
    std::int64_t below = 0;
    for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket) {
      below += counts_[bucket];
      if (below >= rank) return std::min(MiddleOf(bucket), max_);
    }
    return max_;
  }

 private:
  // The bits of a double's exponent and of the first digits of its mantissa are a logarithmic
  // scale.
  static constexpr int kMantissaBits = 7;
  static constexpr int kShift = 52 - kMantissaBits;
  static constexpr double kLeast = 0x1p-30;
  static constexpr double kMost = 0x1p33;
  static constexpr std::uint64_t Scale(double value) {
    return std::bit_cast<std::uint64_t>(value) >> kShift;
  }
  // 63 powers of two, and one bucket at either end.
  static constexpr std::size_t kNumBuckets = 2 + (63 << kMantissaBits);

  static std::size_t BucketOf(double value) {
    if (value < kLeast) return 0;
    return 1 + Scale(std::min(value, kMost)) - Scale(kLeast);
  }
  static double MiddleOf(std::size_t bucket) {
    if (bucket == 0) return 0;
    const std::uint64_t low = (Scale(kLeast) + bucket - 1) << kShift;
    return std::bit_cast<double>(low | (std::uint64_t{1} << (kShift - 1)));
  }

  std::vector<std::int64_t> counts_;
  std::int64_t count_ = 0;
  Seconds sum_ = 0;
  Seconds max_ = 0;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_LATENCY_HISTOGRAM_H_
