// What happened in a replay, as numbers, as a table and as JSON.
#ifndef TALLY_ENGINE_WORKLOAD_REPLAY_REPORT_H_
#define TALLY_ENGINE_WORKLOAD_REPLAY_REPORT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/types.h"
#include "engine/core/step_outcome.h"
#include "engine/workload/latency_histogram.h"
#include "engine/workload/replay_config.h"

namespace tally {

struct ReplayReport {
  // Where the requests came from.
  std::string workload;  // a path, or "generated"
  std::string format;
  std::string arrivals;  // how arrival times came about, in words
  bool interrupted = false;

  // Requests: read = done + rejected + unfinished; bad rows are beside them.
  std::int64_t num_read = 0;
  std::int64_t num_done = 0;
  std::int64_t num_rejected = 0;
  std::int64_t num_bad_rows = 0;
  std::map<std::string, std::int64_t> rejected_by_reason;
  std::vector<std::string> rejected_examples;  // the first few, in words
  std::vector<std::string> bad_row_examples;
  std::int64_t num_unfinished() const { return num_read - num_done - num_rejected; }

  // Prompt tokens. All counts but the first are over requests that gave a first output: for them
  // computed + local + external = prompt.
  std::int64_t num_prompt_tokens_read = 0;
  std::int64_t num_first_outputs = 0;
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_computed_tokens = 0;
  std::int64_t num_local_cached_tokens = 0;
  std::int64_t num_external_cached_tokens = 0;
  double hit_rate() const;  // cached / prompt, 0 to 1
  // The identity above, and that of the requests.
  bool accounted() const;

  // What an infinite cache would have held of the prompts read (prefix_bound.h).
  bool has_prefixes = false;
  double hit_rate_bound = 0;

  std::int64_t num_output_tokens = 0;
  std::int64_t num_preemptions = 0;
  // Scheduled for a request at positions that it had computed before.
  std::int64_t num_recomputed_tokens = 0;
  std::int64_t num_scheduled_tokens = 0;
  double peak_kv_usage = 0;  // share of usable blocks in use after a Schedule, 0 to 1
  std::int64_t peak_running = 0;
  std::int64_t peak_waiting = 0;  // arrived, and not running
  PrefixCacheStats prefix_cache;  // summed over the run

  // Moved by the connector.
  double loaded_bytes = 0;
  double stored_bytes = 0;

  // Virtual time.
  Seconds virtual_time = 0;
  LatencyHistogram ttft;         // from a request's arrival to its first token
  LatencyHistogram inter_token;  // from each of its tokens to the next
  LatencyHistogram end_to_end;   // from its arrival to its last token

  // Real time. Scheduling is Schedule and Update; adding is AddRequest; neither includes the
  // reading, the expansion of prompts or the sampling.
  std::int64_t num_steps = 0;
  std::int64_t num_request_steps = 0;  // requests scheduled, summed over the steps
  Seconds wall_time = 0;
  Seconds schedule_time = 0;
  Seconds update_time = 0;
  Seconds add_time = 0;
};

// The table that a person reads.
std::string FormatReplayReport(const ReplayReport& report, const ReplayConfig& config);

// The same as data, with every number in its unit: tokens, requests, seconds.
nlohmann::json ReplayReportJson(const ReplayReport& report, const ReplayConfig& config);

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_REPLAY_REPORT_H_
