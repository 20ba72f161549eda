// Encoder inputs of multimodal requests: which run in a step, and how far the step may go
// (scheduler.md section 7).
#include <algorithm>

#include "engine/base/check.h"
#include "engine/core/scheduler.h"

namespace tally {

std::int32_t Scheduler::ChooseEncoderInputs(RequestHandle handle, std::int32_t computed,
                                            std::int32_t num_tokens, std::int32_t ahead) {
  chosen_inputs_.clear();
  if (num_tokens <= 0) return num_tokens;
  const std::vector<MultimodalItem>& inputs = requests_.request(handle).encoder_inputs;
  std::int32_t pending = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const MultimodalItem& input = inputs[i];
    if (input.offset >= computed + num_tokens + ahead) break;
    if (config_.encoder_decoder) {
      if (computed > 0) continue;  // the encoder ran with the first chunk
    } else {
      if (input.end() <= computed) continue;
      const auto same = [&](std::int32_t chosen) {
        return inputs[static_cast<std::size_t>(chosen)].hash == input.hash;
      };
      if (std::any_of(chosen_inputs_.begin(), chosen_inputs_.end(), same)) continue;
      if (encoder_cache_->Reference(input.hash, handle)) continue;
    }
    if (config_.disable_chunked_mm_input && computed < input.offset &&
        computed + num_tokens < input.end()) {
      return std::max(0, input.offset - (computed + ahead));  // the step ends before the input
    }
    const bool fits_budget = input.length + pending <= encoder_budget_;
    if (!fits_budget || !encoder_cache_->MakeRoom(input.length, pending)) {
      return computed + ahead < input.offset ? input.offset - (computed + ahead) : 0;
    }
    // An input that the step does not reach into yet needs no embeddings now.
    if (std::max(0, computed - input.offset) >=
        std::min(input.length, computed + num_tokens - input.offset))
      continue;
    pending += input.length;
    chosen_inputs_.push_back(static_cast<std::int32_t>(i));
  }
  return num_tokens;
}

std::int32_t Scheduler::ChosenEmbeddings(const Request& request) const {
  std::int32_t embeddings = 0;
  for (std::int32_t input : chosen_inputs_)
    embeddings += request.encoder_inputs[static_cast<std::size_t>(input)].length;
  return embeddings;
}

void Scheduler::ScheduleChosenInputs(RequestHandle handle) {
  const Request& request = requests_.request(handle);
  for (std::int32_t place : chosen_inputs_) {
    const MultimodalItem& input = request.encoder_inputs[static_cast<std::size_t>(place)];
    encoder_cache_->Allocate(input.hash, input.length, handle);
    encoder_budget_ -= input.length;
    encoder_inputs_.push_back({handle, place});
  }
}

void Scheduler::ReleasePassedInputs(RequestHandle handle) {
  const std::int32_t computed = requests_.state(handle).num_computed_tokens;
  for (const MultimodalItem& input : requests_.request(handle).encoder_inputs) {
    const bool passed = config_.encoder_decoder ? computed > 0 : input.end() <= computed;
    if (passed) encoder_cache_->Release(input.hash, input.length, handle);
  }
}

void Scheduler::ReleaseEncoderInputs(RequestHandle handle) {
  if (!requests_.state(handle).has_encoder_inputs) return;
  for (const MultimodalItem& input : requests_.request(handle).encoder_inputs) {
    encoder_cache_->Release(input.hash, input.length, handle);
  }
}

}  // namespace tally
