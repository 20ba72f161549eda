#include "engine/accounting/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/accounting/metric_number.h"

namespace tally {

Histogram::Histogram(std::span<const double> bounds)
    : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {
  for (const double bound : bounds_) bound_texts_.push_back(MetricNumber(bound));
  bound_texts_.push_back(MetricNumber(std::numeric_limits<double>::infinity()));
}

void Histogram::Observe(double value) {
  sum_ += value;
  if (std::isnan(value)) return;
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(bucket)];
  ++count_;
}

namespace buckets {

std::vector<double> Tokens(std::int64_t most) {
  std::vector<double> bounds;
  for (std::int64_t power = 1;; power *= 10) {
    for (const std::int64_t factor : {1, 2, 5}) {
      if (factor * power > most) return bounds;
      bounds.push_back(static_cast<double>(factor * power));
    }
  }
}

}  // namespace buckets
}  // namespace tally
