// Random numbers for workloads: the same on every machine for the same seed, unlike the
// distributions of the standard library.
#ifndef TALLY_ENGINE_WORKLOAD_RANDOM_H_
#define TALLY_ENGINE_WORKLOAD_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <numbers>

#include "engine/workload/token_expansion.h"

namespace tally {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(Mix(seed + 0x632BE59BD9B4E019ULL)) {}

  std::uint64_t Next() { return Mix(state_ += 0x9E3779B97F4A7C15ULL); }
  // Above 0 and at most 1.
  double Uniform() { return static_cast<double>((Next() >> 11) + 1) * 0x1p-53; }
  double Exponential(double mean) { return -mean * std::log(Uniform()); }
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }
  double LogNormal(double median, double sigma) { return median * std::exp(sigma * Normal()); }

 private:
  std::uint64_t state_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_RANDOM_H_
