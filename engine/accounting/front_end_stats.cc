#include "engine/accounting/front_end_stats.h"

namespace tally {

void FrontEndStats::AddRequest(RequestHandle request, std::int64_t num_prompt_tokens,
                               std::int64_t max_tokens, Seconds arrival, bool streaming,
                               std::string_view lora_name) {
  if (Index(request) >= requests_.size()) requests_.resize(Index(request) + 1);
  RequestTimes& times = requests_[Index(request)];
  times = RequestTimes{};
  times.known = true;
  times.num_prompt_tokens = num_prompt_tokens;
  times.max_tokens = max_tokens;
  times.arrival = arrival;
  times.streaming = streaming;
  times.lora_name.assign(lora_name);
}

void FrontEndStats::AddChunk(RequestHandle request, std::int64_t num_prompt_tokens,
                             Seconds arrival) {
  RequestTimes& times = requests_[Index(request)];
  const Chunk chunk{num_prompt_tokens, arrival, false};
  if (times.idle) {
    times.idle = false;
    Apply(chunk, times);
  } else {
    times.chunks.push_back(chunk);
  }
}

void FrontEndStats::EndSession(RequestHandle request) {
  RequestTimes& times = requests_[Index(request)];
  if (times.idle) {
    times.known = false;  // without any statistics, as upstream does
  } else if (!times.chunks.empty()) {
    times.chunks.back().final = true;
  } else {
    times.streaming = false;  // the next finish reason is a real one
  }
}

void FrontEndStats::Apply(const Chunk& chunk, RequestTimes& times) {
  times.num_prompt_tokens += chunk.num_prompt_tokens;
  times.arrival = chunk.arrival;
  times.prefilling = true;
  times.streaming = !chunk.final;
}

void FrontEndStats::Forget(RequestHandle request) {
  if (Index(request) >= requests_.size() || !requests_[Index(request)].known) return;
  requests_[Index(request)].known = false;
  loras_.Set(requests_[Index(request)].lora_name, request, LoraStates::State::kGone);
}

void FrontEndStats::Process(std::span<const RequestOutput> outputs, Seconds batch_time,
                            Seconds reception_time, IterationStats& stats) {
  stats.Clear();
  for (const RequestOutput& output : outputs) {
    if (Index(output.request) >= requests_.size() || !requests_[Index(output.request)].known)
      continue;
    RequestTimes& times = requests_[Index(output.request)];

    const auto num_tokens = static_cast<std::int64_t>(output.tokens.size());
    stats.num_generation_tokens += num_tokens;
    if (times.prefilling) {
      if (output.prefill_stats != nullptr) stats.prompt_tokens.Add(*output.prefill_stats);
      stats.times_to_first_token.push_back(reception_time - times.arrival);
    }
    times.num_generation_tokens += num_tokens;
    for (const RequestEvent& event : output.events) {
      switch (event.kind) {
        case RequestEvent::Kind::kQueued:
          times.queued = event.time;
          loras_.Set(times.lora_name, output.request, LoraStates::State::kWaiting);
          break;
        case RequestEvent::Kind::kScheduled:
          if (times.scheduled == 0)
            times.scheduled = event.time;  // a preemption does not move it (RS-4)
          loras_.Set(times.lora_name, output.request, LoraStates::State::kRunning);
          break;
        case RequestEvent::Kind::kPreempted:
          ++stats.num_preempted_requests;
          loras_.Set(times.lora_name, output.request, LoraStates::State::kWaiting);
          break;
      }
    }
    if (times.prefilling) {
      times.first_output = batch_time;
    } else {
      stats.inter_token_latencies.push_back(batch_time - times.last_output);
    }
    times.last_output = batch_time;
    if (times.prefilling && output.prefill_stats != nullptr) {
      times.num_cached_tokens = output.prefill_stats->num_cached_tokens;
    }
    times.prefilling = false;

    if (output.finish_reason == FinishReason::kNone) continue;
    if (times.streaming) {  // the end of a chunk, not of the session (SES-3)
      if (times.chunks.empty()) {
        times.idle = true;
      } else {
        Apply(times.chunks.front(), times);
        times.chunks.erase(times.chunks.begin());
      }
    } else {
      loras_.Set(times.lora_name, output.request, LoraStates::State::kGone);
      stats.finished.push_back(Finish(times, output.finish_reason, reception_time));
      times.known = false;
    }
  }
}

FinishedRequestStats FrontEndStats::Finish(const RequestTimes& times, FinishReason reason,
                                           Seconds reception_time) {
  FinishedRequestStats finished;
  finished.reason = reason;
  finished.e2e_latency = reception_time - times.arrival;
  finished.queued = times.scheduled - times.queued;
  finished.prefill = times.first_output - times.scheduled;
  finished.inference = times.last_output - times.scheduled;
  finished.decode = times.last_output - times.first_output;
  if (times.num_generation_tokens > 1) {
    finished.mean_per_output_token =
        finished.decode / static_cast<double>(times.num_generation_tokens - 1);
  }
  finished.num_prompt_tokens = times.num_prompt_tokens;
  finished.num_generation_tokens = times.num_generation_tokens;
  finished.num_cached_tokens = times.num_cached_tokens;
  finished.max_tokens = times.max_tokens;
  return finished;
}

}  // namespace tally
