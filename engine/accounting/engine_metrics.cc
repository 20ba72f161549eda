#include "engine/accounting/engine_metrics.h"

#include <algorithm>

#include "engine/base/check.h"

namespace tally {
namespace {

constexpr FinishReason kReasons[] = {FinishReason::kStop, FinishReason::kLength,
                                     FinishReason::kAbort, FinishReason::kError,
                                     FinishReason::kRepetition};

// Gives the samples of one series after the other to the visitor.
class SampleWriter {
 public:
  explicit SampleWriter(absl::FunctionRef<void(const MetricSample&)> visit) : visit_(visit) {}

  void Value(std::string_view name, double value) { visit_({name, "", "", value}); }
  void Value(std::string_view name, std::int64_t value) { Value(name, static_cast<double>(value)); }
  void Labelled(std::string_view name, std::string_view label, std::string_view label_value,
                std::int64_t value) {
    visit_({name, label, label_value, static_cast<double>(value)});
  }

  // Buckets are exposed cumulatively (EXF-4).
  void Buckets(std::string_view name, const Histogram& histogram) {
    std::int64_t cumulative = 0;
    Join(name, "_bucket");
    for (std::size_t i = 0; i < histogram.num_buckets(); ++i) {
      cumulative += histogram.count_in(i);
      Labelled(joined_, "le", histogram.bound_text(i), cumulative);
    }
    Join(name, "_count");
    Value(joined_, histogram.count());
    Join(name, "_sum");
    Value(joined_, histogram.sum());
  }

 private:
  void Join(std::string_view name, std::string_view suffix) {
    joined_.assign(name);
    joined_.append(suffix);
  }

  absl::FunctionRef<void(const MetricSample&)> visit_;
  std::string joined_;
};

}  // namespace

EngineMetrics::EngineMetrics(const Config& config)
    : num_speculative_tokens_(config.num_speculative_tokens),
      max_loras_(config.max_loras),
      accepted_per_position_(static_cast<std::size_t>(config.num_speculative_tokens)),
      request_prompt_tokens_(buckets::Tokens(config.max_model_len)),
      request_generation_tokens_(buckets::Tokens(config.max_model_len)),
      iteration_tokens_(buckets::kIterationTokens),
      max_num_generation_tokens_(buckets::Tokens(config.max_model_len)),
      params_n_(buckets::kParallelSamples),
      params_max_tokens_(buckets::Tokens(config.max_model_len)),
      time_to_first_token_(buckets::kTimeToFirstToken),
      inter_token_latency_(buckets::kInterTokenLatency),
      time_per_output_token_(buckets::kInterTokenLatency),
      e2e_latency_(buckets::kRequestLatency),
      queue_time_(buckets::kRequestLatency),
      inference_time_(buckets::kRequestLatency),
      prefill_time_(buckets::kRequestLatency),
      decode_time_(buckets::kRequestLatency),
      prefill_kv_computed_tokens_(buckets::Tokens(config.max_model_len)) {
  for (std::int32_t i = 0; i < config.num_speculative_tokens; ++i)
    positions_.push_back(std::to_string(i));
}

void EngineMetrics::RecordScheduler(const SchedulerStats& stats) {
  num_running_ = stats.num_running;
  num_waiting_ = stats.num_waiting;
  num_deferred_ = stats.num_skipped;
  kv_cache_usage_ = stats.kv_cache_usage;
  prefix_cache_queries_ += stats.prefix_cache.queries;
  prefix_cache_hits_ += stats.prefix_cache.hits;
  if (stats.connector_prefix_cache) {
    external_prefix_cache_queries_ += stats.connector_prefix_cache->queries;
    external_prefix_cache_hits_ += stats.connector_prefix_cache->hits;
  }

  const SpecDecodingStats& spec = stats.spec_decoding;
  if (num_speculative_tokens_ == 0 || spec.num_drafts == 0) return;
  num_drafts_ += spec.num_drafts;
  num_draft_tokens_ += spec.num_draft_tokens;
  num_accepted_tokens_ += spec.num_accepted_tokens;
  TALLY_CHECK(spec.accepted_per_position.size() == accepted_per_position_.size(),
              "%zu positions, wanted %zu", spec.accepted_per_position.size(),
              accepted_per_position_.size());
  for (std::size_t i = 0; i < accepted_per_position_.size(); ++i) {
    accepted_per_position_[i] += spec.accepted_per_position[i];
  }
}

void EngineMetrics::RecordLoras(const LoraStates& loras, Seconds now) {
  if (max_loras_ == 0) return;
  const std::string names = loras.Names();
  const std::string labels = "max_lora=\"" + std::to_string(max_loras_) +
                             "\",running_lora_adapters=\"" + names + "\",waiting_lora_adapters=\"" +
                             names + "\"";
  const auto known = std::find_if(lora_info_.begin(), lora_info_.end(),
                                  [&](const auto& info) { return info.first == labels; });
  if (known != lora_info_.end()) {
    known->second = now;
  } else {
    lora_info_.emplace_back(labels, now);
  }
}

void EngineMetrics::RecordIteration(const IterationStats& stats) {
  num_preemptions_ += stats.num_preempted_requests;
  prompt_tokens_.total += stats.prompt_tokens.total;
  prompt_tokens_.computed += stats.prompt_tokens.computed;
  prompt_tokens_.local_cache_hit += stats.prompt_tokens.local_cache_hit;
  prompt_tokens_.external_kv_transfer += stats.prompt_tokens.external_kv_transfer;
  prompt_tokens_.cached += stats.prompt_tokens.cached;
  generation_tokens_ += stats.num_generation_tokens;
  // Cached and transferred prompt tokens included (ID-11).
  iteration_tokens_.Observe(
      static_cast<double>(stats.prompt_tokens.total + stats.num_generation_tokens));
  for (const Seconds time : stats.times_to_first_token) time_to_first_token_.Observe(time);
  for (const Seconds time : stats.inter_token_latencies) inter_token_latency_.Observe(time);
  for (const FinishedRequestStats& finished : stats.finished) RecordFinished(finished);
}

void EngineMetrics::RecordFinished(const FinishedRequestStats& finished) {
  const auto reason =
      std::find(std::begin(kReasons), std::end(kReasons), finished.reason) - std::begin(kReasons);
  ++finished_[static_cast<std::size_t>(reason)];
  const auto generated = static_cast<double>(finished.num_generation_tokens);
  // One request is one sample: its tokens are the longest of its siblings (FS-5).
  max_num_generation_tokens_.Observe(generated);
  params_n_.Observe(1);
  e2e_latency_.Observe(finished.e2e_latency);
  queue_time_.Observe(finished.queued);
  prefill_time_.Observe(finished.prefill);
  inference_time_.Observe(finished.inference);
  decode_time_.Observe(finished.decode);
  prefill_kv_computed_tokens_.Observe(
      static_cast<double>(finished.num_prompt_tokens - finished.num_cached_tokens));
  request_prompt_tokens_.Observe(static_cast<double>(finished.num_prompt_tokens));
  request_generation_tokens_.Observe(generated);
  time_per_output_token_.Observe(finished.mean_per_output_token);
  if (finished.max_tokens != 0)
    params_max_tokens_.Observe(static_cast<double>(finished.max_tokens));
}

void EngineMetrics::ForEachSample(absl::FunctionRef<void(const MetricSample&)> visit) const {
  SampleWriter out(visit);
  if (num_speculative_tokens_ > 0) {
    out.Value("vllm:spec_decode_num_drafts_total", num_drafts_);
    out.Value("vllm:spec_decode_num_draft_tokens_total", num_draft_tokens_);
    out.Value("vllm:spec_decode_num_accepted_tokens_total", num_accepted_tokens_);
    for (std::size_t i = 0; i < positions_.size(); ++i) {
      out.Labelled("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position", positions_[i],
                   accepted_per_position_[i]);
    }
  }
  out.Value("vllm:num_requests_running", num_running_);
  out.Value("vllm:num_requests_waiting", num_waiting_ + num_deferred_);
  out.Labelled("vllm:num_requests_waiting_by_reason", "reason", "capacity", num_waiting_);
  out.Labelled("vllm:num_requests_waiting_by_reason", "reason", "deferred", num_deferred_);
  // The engine never sleeps.
  out.Labelled("vllm:engine_sleep_state", "sleep_state", "awake", 1);
  out.Labelled("vllm:engine_sleep_state", "sleep_state", "weights_offloaded", 0);
  out.Labelled("vllm:engine_sleep_state", "sleep_state", "discard_all", 0);
  out.Value("vllm:kv_cache_usage_perc", kv_cache_usage_);
  out.Value("vllm:prefix_cache_queries_total", prefix_cache_queries_);
  out.Value("vllm:prefix_cache_hits_total", prefix_cache_hits_);
  out.Value("vllm:external_prefix_cache_queries_total", external_prefix_cache_queries_);
  out.Value("vllm:external_prefix_cache_hits_total", external_prefix_cache_hits_);
  out.Value("vllm:num_preemptions_total", num_preemptions_);
  out.Value("vllm:prompt_tokens_total", prompt_tokens_.total);
  out.Labelled("vllm:prompt_tokens_by_source_total", "source", "local_compute",
               prompt_tokens_.computed);
  out.Labelled("vllm:prompt_tokens_by_source_total", "source", "local_cache_hit",
               prompt_tokens_.local_cache_hit);
  out.Labelled("vllm:prompt_tokens_by_source_total", "source", "external_kv_transfer",
               prompt_tokens_.external_kv_transfer);
  out.Value("vllm:prompt_tokens_cached_total", prompt_tokens_.cached);
  out.Value("vllm:generation_tokens_total", generation_tokens_);
  for (std::size_t i = 0; i < kNumReasons; ++i) {
    out.Labelled("vllm:request_success_total", "finished_reason", FinishReasonName(kReasons[i]),
                 finished_[i]);
  }
  out.Buckets("vllm:request_prompt_tokens", request_prompt_tokens_);
  out.Buckets("vllm:request_generation_tokens", request_generation_tokens_);
  out.Buckets("vllm:iteration_tokens_total", iteration_tokens_);
  out.Buckets("vllm:request_max_num_generation_tokens", max_num_generation_tokens_);
  out.Buckets("vllm:request_params_n", params_n_);
  out.Buckets("vllm:request_params_max_tokens", params_max_tokens_);
  out.Buckets("vllm:time_to_first_token_seconds", time_to_first_token_);
  out.Buckets("vllm:inter_token_latency_seconds", inter_token_latency_);
  out.Buckets("vllm:request_time_per_output_token_seconds", time_per_output_token_);
  out.Buckets("vllm:e2e_request_latency_seconds", e2e_latency_);
  out.Buckets("vllm:request_queue_time_seconds", queue_time_);
  out.Buckets("vllm:request_inference_time_seconds", inference_time_);
  out.Buckets("vllm:request_prefill_time_seconds", prefill_time_);
  out.Buckets("vllm:request_decode_time_seconds", decode_time_);
  out.Buckets("vllm:request_prefill_kv_computed_tokens", prefill_kv_computed_tokens_);
  for (const auto& [labels, time] : lora_info_) {
    visit({"vllm:lora_requests_info", {}, {}, time, labels});
  }
}

}  // namespace tally
