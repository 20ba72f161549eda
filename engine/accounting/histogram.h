// A Prometheus histogram and the bucket lists of the metrics (metrics.md 4.2).
#ifndef TALLY_ENGINE_ACCOUNTING_HISTOGRAM_H_
#define TALLY_ENGINE_ACCOUNTING_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tally {

class Histogram {
 public:
  // Upper bounds, increasing; the bucket without a bound is added.
  explicit Histogram(std::span<const double> bounds);

  // Counts into the first bucket whose bound is at least the value (BK-8). The sum is taken in the
  // order of the calls. A NaN goes to the sum only. O(log buckets).
  void Observe(double value);

  std::size_t num_buckets() const { return counts_.size(); }
  // The bound as the label `le` has it: "0.25", "+Inf".
  const std::string& bound_text(std::size_t bucket) const { return bound_texts_[bucket]; }
  // Observations in this bucket alone.
  std::int64_t count_in(std::size_t bucket) const { return counts_[bucket]; }
  std::int64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::string> bound_texts_;
  std::vector<std::int64_t> counts_;
  std::int64_t count_ = 0;
  double sum_ = 0;
};

namespace buckets {

// 1, 2, 5, 10, 20, 50, ... up to `most` (BK-1).
std::vector<double> Tokens(std::int64_t most);

inline constexpr double kIterationTokens[] = {1,   8,    16,   32,   64,   128,  256,
                                              512, 1024, 2048, 4096, 8192, 16384};
inline constexpr double kParallelSamples[] = {1, 2, 5, 10, 20};
// Seconds.
inline constexpr double kTimeToFirstToken[] = {.001, .005, .01, .02, .04, .06, .08, .1,
                                               .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                               20,   40,   80,  160, 640, 2560};
inline constexpr double kInterTokenLatency[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                                .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
inline constexpr double kRequestLatency[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                             30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};

}  // namespace buckets
}  // namespace tally

#endif  // TALLY_ENGINE_ACCOUNTING_HISTOGRAM_H_
