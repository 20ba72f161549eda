// Numbers in Prometheus' text format (metrics.md EXF-3).
#ifndef TALLY_ENGINE_ACCOUNTING_METRIC_NUMBER_H_
#define TALLY_ENGINE_ACCOUNTING_METRIC_NUMBER_H_

#include <string>

namespace tally {

// The shortest decimal that reads back as the same double, in Python's style: "2.0", "0.25",
// "1e-05"; positive numbers with more than six digits before the point in exponent form: "1e+06".
// "+Inf", "-Inf", "NaN".
std::string MetricNumber(double value);

}  // namespace tally

#endif  // TALLY_ENGINE_ACCOUNTING_METRIC_NUMBER_H_
