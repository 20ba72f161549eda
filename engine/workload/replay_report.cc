#include "engine/workload/replay_report.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace tally {
namespace {

double Share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// 1234567 as 1,234,567.
std::string Count(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (std::size_t end = digits.size(); end > 3 && digits[end - 4] != '-'; end -= 3) {
    digits.insert(end - 3, ",");
  }
  return digits;
}

// A duration with the unit that suits it, to three digits: percentiles are no more precise.
std::string Time(Seconds value) {
  const auto show = [](double number, std::string_view unit) {
    const int decimals = number < 10 ? 2 : number < 100 ? 1 : 0;
    return fmt::format("{:.{}f} {}", number, decimals, unit);
  };
  if (value == 0) return "0 s";
  if (value < 1e-6) return show(value * 1e9, "ns");
  if (value < 1e-3) return show(value * 1e6, "us");
  if (value < 1) return show(value * 1e3, "ms");
  return show(value, "s");
}

class Table {
 public:
  void Title(std::string_view text) { text_ += fmt::format("\n{}\n", text); }
  void Row(std::string_view name, std::string_view value, std::string_view note = "") {
    if (note.empty()) {
      text_ += fmt::format("  {:<30} {:>16}\n", name, value);
    } else {
      text_ += fmt::format("  {:<30} {:>16}  {}\n", name, value, note);
    }
  }
  void Line(std::string_view text) { text_ += fmt::format("  {}\n", text); }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

void AddLatencies(std::string_view name, const LatencyHistogram& latency, Table& table) {
  table.Line(fmt::format("{:<22} {:>12} {:>12} {:>12} {:>12}", name, Time(latency.Percentile(0.5)),
                         Time(latency.Percentile(0.9)), Time(latency.Percentile(0.99)),
                         Time(latency.max())));
}

nlohmann::json LatencyJson(const LatencyHistogram& latency) {
  return {{"count", latency.count()},        {"mean", latency.mean()},
          {"p50", latency.Percentile(0.5)},  {"p90", latency.Percentile(0.9)},
          {"p99", latency.Percentile(0.99)}, {"max", latency.max()}};
}

}  // namespace

double ReplayReport::hit_rate() const {
  return Share(num_local_cached_tokens + num_external_cached_tokens, num_prompt_tokens);
}

bool ReplayReport::accounted() const {
  return num_computed_tokens + num_local_cached_tokens + num_external_cached_tokens ==
             num_prompt_tokens &&
         num_unfinished() >= 0 && num_first_outputs >= num_done &&
         num_first_outputs <= num_done + num_unfinished();
}

std::string FormatReplayReport(const ReplayReport& report, const ReplayConfig& config) {
  Table table;
  const EngineConfig& engine = config.engine;
  table.Title("Replay");
  table.Line(fmt::format("workload   {} ({}), arrivals: {}", report.workload, report.format,
                         report.arrivals));
  table.Line(fmt::format(
      "engine     {} blocks of {} tokens, {} sequences, {} tokens a step, max_model_len {}, {}{}",
      Count(engine.kv.num_blocks), engine.kv.block_size, engine.max_num_seqs,
      engine.max_num_batched_tokens, engine.max_model_len,
      engine.policy == SchedulingPolicy::kFcfs ? "fcfs" : "priority",
      engine.async_scheduling ? ", asynchronous" : ""));
  table.Line(fmt::format("step time  {}", config.step_time->Describe()));
  if (config.connector) {
    table.Line(fmt::format("connector  {}: {} blocks, {} GB/s each way, {}",
                           config.connector->kind == "offload" ? "host memory" : "shared store",
                           Count(config.connector->num_blocks),
                           config.connector->bytes_per_second / 1e9,
                           config.connector->eviction == EvictionPolicy::kLru ? "lru" : "arc"));
  }
  if (report.interrupted) table.Line("INTERRUPTED: what follows is the part that was replayed");

  table.Title("Requests");
  table.Row("read", Count(report.num_read));
  table.Row("done", Count(report.num_done));
  table.Row("rejected", Count(report.num_rejected));
  for (const auto& [reason, count] : report.rejected_by_reason) {
    table.Row("  " + reason, Count(count));
  }
  for (const std::string& example : report.rejected_examples) table.Line("    " + example);
  table.Row("unfinished", Count(report.num_unfinished()));
  table.Row("bad rows passed over", Count(report.num_bad_rows));
  for (const std::string& example : report.bad_row_examples) table.Line("    " + example);

  table.Title("Prompt tokens by source");
  const auto source_row = [&](std::string_view name, std::int64_t tokens) {
    table.Row(name, Count(tokens),
              fmt::format("{:.1f} %", 100 * Share(tokens, report.num_prompt_tokens)));
  };
  source_row("computed", report.num_computed_tokens);
  source_row("local cache hit", report.num_local_cached_tokens);
  source_row(!config.connector                     ? "external"
             : config.connector->kind == "offload" ? "external: host memory"
                                                   : "external: shared store",
             report.num_external_cached_tokens);
  table.Row("prompt tokens", Count(report.num_prompt_tokens),
            report.accounted() ? "= computed + local + external"
                               : "DIFFERS from computed + local + external");
  table.Row("hit rate", fmt::format("{:.1f} %", 100 * report.hit_rate()),
            report.has_prefixes
                ? fmt::format("infinite cache: {:.1f} %", 100 * report.hit_rate_bound)
                : "the workload says nothing about prefixes");

  table.Title("Work");
  table.Row("output tokens", Count(report.num_output_tokens));
  table.Row("tokens scheduled", Count(report.num_scheduled_tokens));
  table.Row("recomputed after preemption", Count(report.num_recomputed_tokens));
  table.Row("preemptions", Count(report.num_preemptions));
  if (config.connector) {
    table.Row("loaded", fmt::format("{:.1f} GB", report.loaded_bytes / 1e9));
    table.Row("stored", fmt::format("{:.1f} GB", report.stored_bytes / 1e9));
  }
  table.Row("peak KV usage", fmt::format("{:.1f} %", 100 * report.peak_kv_usage));
  table.Row("peak running", Count(report.peak_running));
  table.Row("peak waiting", Count(report.peak_waiting));

  table.Title("Latency (virtual)");
  table.Line(fmt::format("{:<22} {:>12} {:>12} {:>12} {:>12}", "", "p50", "p90", "p99", "max"));
  AddLatencies("time to first token", report.ttft, table);
  AddLatencies("inter-token", report.inter_token, table);
  AddLatencies("end to end", report.end_to_end, table);
  table.Row("virtual time", Time(report.virtual_time));

  table.Title("This run");
  const Seconds scheduling = report.schedule_time + report.update_time;
  const auto per = [&](std::int64_t count) {
    return Time(count == 0 ? 0 : scheduling / static_cast<double>(count));
  };
  table.Row("wall time", Time(report.wall_time));
  table.Row("steps", Count(report.num_steps));
  table.Row("request-steps", Count(report.num_request_steps));
  table.Row(
      "scheduling", Time(scheduling),
      fmt::format("schedule {}, update {}", Time(report.schedule_time), Time(report.update_time)));
  table.Row("scheduling a step", per(report.num_steps));
  table.Row("scheduling a request-step", per(report.num_request_steps));
  return table.Take();
}

nlohmann::json ReplayReportJson(const ReplayReport& report, const ReplayConfig& config) {
  const EngineConfig& engine = config.engine;
  const PrefixCacheStats& cache = report.prefix_cache;
  const Seconds scheduling = report.schedule_time + report.update_time;
  const auto per = [&](std::int64_t count) {
    return count == 0 ? 0 : scheduling / static_cast<double>(count);
  };
  nlohmann::json json;
  json["format"] = "tally-replay/1";
  json["workload"] = {
      {"name", report.workload}, {"format", report.format}, {"arrivals", report.arrivals}};
  json["engine"] = {{"model", config.model.name},
                    {"gpu", config.gpu.name},
                    {"num_gpus", config.num_gpus},
                    {"num_blocks", engine.kv.num_blocks},
                    {"block_size", engine.kv.block_size},
                    {"enable_prefix_caching", engine.kv.enable_prefix_caching},
                    {"max_num_seqs", engine.max_num_seqs},
                    {"max_num_batched_tokens", engine.max_num_batched_tokens},
                    {"max_model_len", engine.max_model_len},
                    {"policy", engine.policy == SchedulingPolicy::kFcfs ? "fcfs" : "priority"},
                    {"async_scheduling", engine.async_scheduling},
                    {"step_time", config.step_time->Describe()}};
  if (config.connector) {
    json["connector"] = {
        {"kind", config.connector->kind},
        {"num_blocks", config.connector->num_blocks},
        {"bytes_per_second", config.connector->bytes_per_second},
        {"eviction", config.connector->eviction == EvictionPolicy::kLru ? "lru" : "arc"},
        {"loaded_bytes", report.loaded_bytes},
        {"stored_bytes", report.stored_bytes}};
  }
  json["interrupted"] = report.interrupted;
  json["requests"] = {{"read", report.num_read},
                      {"done", report.num_done},
                      {"rejected", report.num_rejected},
                      {"rejected_by_reason", report.rejected_by_reason},
                      {"unfinished", report.num_unfinished()},
                      {"bad_rows", report.num_bad_rows}};
  json["prompt_tokens"] = {{"read", report.num_prompt_tokens_read},
                           {"with_first_output", report.num_prompt_tokens},
                           {"computed", report.num_computed_tokens},
                           {"local_cache_hit", report.num_local_cached_tokens},
                           {"external", report.num_external_cached_tokens},
                           {"accounted", report.accounted()},
                           {"hit_rate", report.hit_rate()}};
  json["prompt_tokens"]["hit_rate_of_infinite_cache"] =
      report.has_prefixes ? nlohmann::json(report.hit_rate_bound) : nlohmann::json(nullptr);
  json["prefix_cache"] = {{"requests", cache.requests},
                          {"queries", cache.queries},
                          {"hits", cache.hits},
                          {"preempted_requests", cache.preempted_requests},
                          {"preempted_queries", cache.preempted_queries},
                          {"preempted_hits", cache.preempted_hits}};
  json["work"] = {{"output_tokens", report.num_output_tokens},
                  {"scheduled_tokens", report.num_scheduled_tokens},
                  {"recomputed_tokens", report.num_recomputed_tokens},
                  {"preemptions", report.num_preemptions},
                  {"peak_kv_usage", report.peak_kv_usage},
                  {"peak_running", report.peak_running},
                  {"peak_waiting", report.peak_waiting}};
  json["latency_s"] = {{"time_to_first_token", LatencyJson(report.ttft)},
                       {"inter_token", LatencyJson(report.inter_token)},
                       {"end_to_end", LatencyJson(report.end_to_end)},
                       {"virtual_time", report.virtual_time}};
  json["run"] = {{"wall_s", report.wall_time},
                 {"steps", report.num_steps},
                 {"request_steps", report.num_request_steps},
                 {"schedule_s", report.schedule_time},
                 {"update_s", report.update_time},
                 {"add_s", report.add_time},
                 {"scheduling_per_step_s", per(report.num_steps)},
                 {"scheduling_per_request_step_s", per(report.num_request_steps)}};
  return json;
}

}  // namespace tally
