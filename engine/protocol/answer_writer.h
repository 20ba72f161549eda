// Writes what the scheduler decided and what the accounting counted as answers of the trace format
// (conformance/trace_format.md). Each function writes one whole JSON object.
#ifndef TALLY_ENGINE_PROTOCOL_ANSWER_WRITER_H_
#define TALLY_ENGINE_PROTOCOL_ANSWER_WRITER_H_

#include <span>
#include <string>
#include <string_view>

#include "engine/accounting/engine_metrics.h"
#include "engine/core/scheduler.h"
#include "engine/core/step_outcome.h"
#include "engine/core/step_plan.h"

namespace tally {

// The answer of `schedule`. Wants the plan of the scheduler's last call.
void WritePlan(const Scheduler& scheduler, const StepPlan& plan, std::string& out);
// The answer of `update`. Wants the result of the scheduler's last call.
void WriteResult(const Scheduler& scheduler, const StepResult& result, std::string& out);
// The answer of `abort`.
void WriteAborted(const Scheduler& scheduler, std::span<const RequestHandle> aborted,
                  std::string& out);
// The answer of `state`.
void WriteState(const Scheduler& scheduler, std::string& out);
// The answer of `metrics`: samples that are not zero.
void WriteMetrics(const EngineMetrics& metrics, std::string& out);
// {"error":kind,"message":message}. Bytes of `message` that are not UTF-8 are replaced.
void WriteError(std::string_view kind, std::string_view message, std::string& out);

}  // namespace tally

#endif  // TALLY_ENGINE_PROTOCOL_ANSWER_WRITER_H_
