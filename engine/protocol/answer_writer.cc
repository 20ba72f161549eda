#include "engine/protocol/answer_writer.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "engine/protocol/json_writer.h"

namespace tally {
namespace {

void WriteIds(const Scheduler& scheduler, std::span<const RequestHandle> requests,
              JsonWriter& json) {
  json.BeginArray();
  for (const RequestHandle request : requests) json.String(scheduler.id(request));
  json.EndArray();
}

void WriteSortedIds(const Scheduler& scheduler, std::span<const RequestHandle> requests,
                    JsonWriter& json) {
  std::vector<std::string_view> ids;
  ids.reserve(requests.size());
  for (const RequestHandle request : requests) ids.push_back(scheduler.id(request));
  std::sort(ids.begin(), ids.end());
  json.BeginArray();
  for (const std::string_view id : ids) json.String(id);
  json.EndArray();
}

template <typename T>
void WriteNumbers(std::span<const T> numbers, JsonWriter& json) {
  json.BeginArray();
  for (const T number : numbers) {
    if constexpr (std::is_same_v<T, BlockId>) {
      json.Int(Index(number));
    } else {
      json.Int(number);
    }
  }
  json.EndArray();
}

// For each group the blocks that are new to the worker.
void WriteNewBlocks(const Scheduler& scheduler, const StepPlan& plan, const ScheduledRequest& entry,
                    JsonWriter& json) {
  json.BeginArray();
  for (std::uint32_t group = 0; group < plan.num_groups; ++group) {
    const std::span<const BlockId> table = scheduler.kv().Table(entry.request, group);
    json.BeginArray();
    for (const BlockId block : table.subspan(plan.FirstNewBlock(entry, group)))
      json.Int(Index(block));
    json.EndArray();
  }
  json.EndArray();
}

void WriteCached(const Scheduler& scheduler, const StepPlan& plan, ScheduledRequest::Kind kind,
                 JsonWriter& json) {
  for (const ScheduledRequest& entry : plan.requests) {
    if (entry.kind != kind) continue;
    json.BeginArray().String(scheduler.id(entry.request));
    if (entry.has_new_blocks()) {
      WriteNewBlocks(scheduler, plan, entry, json);
    } else {
      json.Null();
    }
    json.Int(entry.num_computed_tokens)
        .Int(entry.num_output_tokens)
        .Bool(kind == ScheduledRequest::Kind::kResumed);
    json.EndArray();
  }
}

void WritePrefillStats(const PrefillStats& stats, JsonWriter& json) {
  json.BeginObject();
  json.Key("num_prompt_tokens").Int(stats.num_prompt_tokens);
  json.Key("num_computed_tokens").Int(stats.num_computed_tokens);
  json.Key("num_cached_tokens").Int(stats.num_cached_tokens);
  json.Key("num_local_cached_tokens").Int(stats.num_local_cached_tokens);
  json.Key("num_external_cached_tokens").Int(stats.num_external_cached_tokens);
  json.EndObject();
}

void WriteOutput(const Scheduler& scheduler, const RequestOutput& output, JsonWriter& json) {
  json.BeginObject();
  json.Key("id").String(scheduler.id(output.request));
  json.Key("tokens");
  WriteNumbers(output.tokens, json);
  if (output.pooled) json.Key("pooled").Bool(true);
  if (output.finish_reason != FinishReason::kNone)
    json.Key("finish").String(FinishReasonName(output.finish_reason));
  if (output.stop_cause.kind == StopCause::Kind::kToken)
    json.Key("stop_reason").Int(output.stop_cause.token);
  if (output.stop_cause.kind == StopCause::Kind::kRepetition)
    json.Key("stop_reason").String("repetition_detected");
  if (output.prefill_stats != nullptr) {
    json.Key("prefill");
    WritePrefillStats(*output.prefill_stats, json);
  }
  if (!output.events.empty()) {
    json.Key("events").BeginArray();
    for (const RequestEvent& event : output.events) {
      json.BeginArray().String(EventName(event.kind)).Double(event.time).EndArray();
    }
    json.EndArray();
  }
  if (output.kv_transfer_params != nullptr) json.Key("kv").Raw(output.kv_transfer_params->dump());
  json.EndObject();
}

std::string Hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    hex.push_back(kDigits[static_cast<unsigned char>(c) & 0xF]);
  }
  return hex;
}

void WriteHashes(const std::vector<std::string>& hashes, JsonWriter& json) {
  json.BeginArray();
  for (const std::string& hash : hashes) json.String(Hex(hash));
  json.EndArray();
}

void WriteExtraKeys(const KvEvent& event, JsonWriter& json) {
  json.Key("extra_keys").BeginArray();
  for (const std::vector<KvEvent::Key>& keys : event.extra_keys) {
    if (keys.empty()) {
      json.Null();
      continue;
    }
    json.BeginArray();
    for (const KvEvent::Key& key : keys) {
      if (key.offset) json.BeginArray();
      json.String(key.text);
      if (key.offset) json.Int(*key.offset).EndArray();
    }
    json.EndArray();
  }
  json.EndArray();
}

void WriteKvEvent(const KvEvent& event, JsonWriter& json) {
  json.BeginObject();
  switch (event.kind) {
    case KvEvent::Kind::kCleared:
      json.Key("cleared").Bool(true).EndObject();
      return;
    case KvEvent::Kind::kRemoved:
      json.Key("removed");
      WriteHashes(event.hashes, json);
      break;
    case KvEvent::Kind::kStored: {
      json.Key("stored");
      WriteHashes(event.hashes, json);
      json.Key("parent");
      if (event.parent) {
        json.String(Hex(*event.parent));
      } else {
        json.Null();
      }
      json.Key("tokens");
      WriteNumbers(std::span<const TokenId>(event.tokens), json);
      json.Key("block_size").Int(event.block_size);
      if (!event.lora_name.empty()) json.Key("lora").String(event.lora_name);
      const bool any_key = std::any_of(event.extra_keys.begin(), event.extra_keys.end(),
                                       [](const auto& keys) { return !keys.empty(); });
      if (any_key) WriteExtraKeys(event, json);
      break;
    }
  }
  json.Key("medium").String(event.medium);
  if (event.group != 0 && event.medium != "CPU") json.Key("group").Int(event.group);
  json.EndObject();
}

void WritePrefixCacheStats(const PrefixCacheStats& cache, JsonWriter& json) {
  json.BeginObject();
  json.Key("reset").Int(cache.reset ? 1 : 0);
  json.Key("requests").Int(cache.requests);
  json.Key("queries").Int(cache.queries);
  json.Key("hits").Int(cache.hits);
  json.Key("preempted_requests").Int(cache.preempted_requests);
  json.Key("preempted_queries").Int(cache.preempted_queries);
  json.Key("preempted_hits").Int(cache.preempted_hits);
  json.EndObject();
}

void WriteStats(const SchedulerStats& stats, JsonWriter& json) {
  json.BeginObject();
  json.Key("running").Int(stats.num_running);
  json.Key("waiting").Int(stats.num_waiting);
  json.Key("skipped").Int(stats.num_skipped);
  json.Key("kv_usage").Double(stats.kv_cache_usage);
  json.Key("prefix_cache");
  WritePrefixCacheStats(stats.prefix_cache, json);
  if (stats.connector_prefix_cache) {
    json.Key("connector_prefix_cache");
    WritePrefixCacheStats(*stats.connector_prefix_cache, json);
  }
  if (const SpecDecodingStats& spec = stats.spec_decoding; spec.num_drafts > 0) {
    json.Key("spec_decoding").BeginObject();
    json.Key("drafts").Int(spec.num_drafts);
    json.Key("draft_tokens").Int(spec.num_draft_tokens);
    json.Key("accepted_tokens").Int(spec.num_accepted_tokens);
    json.Key("accepted_per_position");
    WriteNumbers(spec.accepted_per_position, json);
    json.EndObject();
  }
  json.EndObject();
}

// Length of the UTF-8 character at the start of `text`; 0 when there is none (RFC 3629: no overlong
// forms, no surrogates).
std::size_t CharacterLength(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i, unsigned char least, unsigned char most) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1, 0x80, 0xBF) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned char least = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned char most = first == 0xED ? 0x9F : 0xBF;
    return follows(1, least, most) && follows(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned char least = first == 0xF0 ? 0x90 : 0x80;
    const unsigned char most = first == 0xF4 ? 0x8F : 0xBF;
    return follows(1, least, most) && follows(2, 0x80, 0xBF) && follows(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

std::string ValidUtf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const std::size_t length = CharacterLength(text);
    valid.append(length == 0 ? "?" : text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return valid;
}

}  // namespace

void WritePlan(const Scheduler& scheduler, const StepPlan& plan, std::string& out) {
  JsonWriter json(out);
  json.BeginObject();
  json.Key("new").BeginArray();
  for (const ScheduledRequest& entry : plan.requests) {
    if (entry.kind != ScheduledRequest::Kind::kNew) continue;
    json.BeginArray().String(scheduler.id(entry.request));
    WriteNewBlocks(scheduler, plan, entry, json);
    json.Int(entry.num_computed_tokens).EndArray();
  }
  json.EndArray();
  json.Key("cached").BeginArray();
  WriteCached(scheduler, plan, ScheduledRequest::Kind::kRunning, json);
  WriteCached(scheduler, plan, ScheduledRequest::Kind::kResumed, json);
  json.EndArray();
  json.Key("tokens").BeginArray();
  for (const ScheduledRequest& entry : plan.requests) {
    json.BeginArray().String(scheduler.id(entry.request)).Int(entry.num_tokens).EndArray();
  }
  json.EndArray();
  if (!plan.draft_tokens.empty()) {
    json.Key("spec").BeginArray();
    for (const ScheduledRequest& entry : plan.requests) {
      if (entry.num_draft_tokens == 0) continue;
      json.BeginArray().String(scheduler.id(entry.request));
      WriteNumbers(plan.Drafts(entry), json);
      json.EndArray();
    }
    json.EndArray();
  }
  if (!plan.encoder_inputs.empty()) {
    json.Key("encoder").BeginArray();
    for (std::size_t i = 0; i < plan.encoder_inputs.size();) {
      const RequestHandle request = plan.encoder_inputs[i].request;
      json.BeginArray().String(scheduler.id(request)).BeginArray();
      for (; i < plan.encoder_inputs.size() && plan.encoder_inputs[i].request == request; ++i) {
        json.Int(plan.encoder_inputs[i].input);
      }
      json.EndArray().EndArray();
    }
    json.EndArray();
  }
  if (!plan.freed_encoder_hashes.empty()) {
    json.Key("freed_encoder").BeginArray();
    for (const std::string& hash : plan.freed_encoder_hashes) json.String(hash);
    json.EndArray();
  }
  if (!plan.blocks_to_zero.empty()) {
    json.Key("zero_blocks");
    WriteNumbers(plan.blocks_to_zero, json);
  }
  json.Key("preempted");
  WriteSortedIds(scheduler, plan.preempted, json);
  json.Key("finished");
  WriteSortedIds(scheduler, plan.finished, json);
  json.Key("common_prefix");
  WriteNumbers(plan.common_prefix_blocks, json);
  json.Key("running");
  WriteIds(scheduler, scheduler.running(), json);
  json.Key("waiting");
  WriteIds(scheduler, scheduler.Waiting(), json);
  json.Key("skipped");
  WriteIds(scheduler, scheduler.Skipped(), json);
  json.Key("free_blocks").Int(scheduler.kv().num_free_blocks());
  if (plan.connector != nullptr) json.Key("connector").Raw(plan.connector->ToJson().dump());
  json.EndObject();
}

void WriteResult(const Scheduler& scheduler, const StepResult& result, std::string& out) {
  JsonWriter json(out);
  json.BeginObject();
  json.Key("outputs").BeginArray();
  for (const RequestOutput& output : result.outputs) WriteOutput(scheduler, output, json);
  json.EndArray();
  if (!result.kv_events.empty()) {
    json.Key("events").BeginArray();
    for (const KvEvent& event : result.kv_events) WriteKvEvent(event, json);
    json.EndArray();
  }
  json.Key("stats");
  WriteStats(result.stats, json);
  json.Key("free_blocks").Int(scheduler.kv().num_free_blocks());
  json.EndObject();
}

void WriteAborted(const Scheduler& scheduler, std::span<const RequestHandle> aborted,
                  std::string& out) {
  JsonWriter json(out);
  json.BeginObject().Key("aborted");
  WriteSortedIds(scheduler, aborted, json);
  json.EndObject();
}

void WriteState(const Scheduler& scheduler, std::string& out) {
  JsonWriter json(out);
  json.BeginObject().Key("requests").BeginObject();
  for (const RequestHandle request : scheduler.KnownRequests()) {
    const RequestState& state = scheduler.state(request);
    json.Key(scheduler.id(request)).BeginObject();
    json.Key("status").String(StatusName(state.status));
    json.Key("computed").Int(state.num_computed_tokens);
    json.Key("tokens").Int(state.num_tokens);
    json.Key("preemptions").Int(state.num_preemptions);
    json.EndObject();
  }
  json.EndObject();
  json.Key("unfinished").Int(scheduler.num_unfinished());
  json.Key("free_blocks").Int(scheduler.kv().num_free_blocks());
  json.EndObject();
}

void WriteMetrics(const EngineMetrics& metrics, std::string& out) {
  JsonWriter json(out);
  std::string key;
  json.BeginObject().Key("metrics").BeginObject();
  metrics.ForEachSample([&](const MetricSample& sample) {
    if (sample.value == 0) return;
    key.assign(sample.name);
    if (!sample.labels.empty()) {
      key.append("{").append(sample.labels).append("}");
    } else if (!sample.label.empty()) {
      key.append("{").append(sample.label).append("=\"").append(sample.label_value).append("\"}");
    }
    json.Key(key).Double(sample.value);
  });
  json.EndObject().EndObject();
}

void WriteError(std::string_view kind, std::string_view message, std::string& out) {
  JsonWriter json(out);
  json.BeginObject();
  json.Key("error").String(kind);
  json.Key("message").String(ValidUtf8(message));
  json.EndObject();
}

}  // namespace tally
