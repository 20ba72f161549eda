// Recordings in the trace format prefill-trace/1 (JSON lines) as a workload: each `add` command is
// a request that arrives at its `t`, with its tokens, limit, priority and cache salt. All other
// commands, the answers and the configuration are passed over.
//
// A file's traces follow one another: time goes on where the trace before ended, and the prefix
// cache is kept. A chunk of a streaming session is a request of its own; the command that ends a
// session is none.
#ifndef TALLY_ENGINE_WORKLOAD_PREFILL_TRACE_FORMAT_H_
#define TALLY_ENGINE_WORKLOAD_PREFILL_TRACE_FORMAT_H_

#include <memory>

#include "engine/workload/row_format.h"

namespace tally {

std::unique_ptr<RowFormat> MakePrefillTraceFormat();

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_PREFILL_TRACE_FORMAT_H_
