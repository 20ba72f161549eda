// The limits and policies of a scheduler. Names and defaults are vLLM's where it has them
// (scheduler.md section 8).
#ifndef TALLY_ENGINE_CORE_ENGINE_CONFIG_H_
#define TALLY_ENGINE_CORE_ENGINE_CONFIG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/core/behavior.h"
#include "engine/kv/kv_cache_config.h"

namespace tally {

enum class SchedulingPolicy : std::uint8_t { kFcfs, kPriority };

// What happens to requests whose KV could not be loaded: they compute it, or they end with an
// error.
enum class LoadFailurePolicy : std::uint8_t { kRecompute, kFail };

struct EngineConfig {
  // The KV cache; the limits and faults at its end are filled in from the fields below.
  KvCacheConfig kv;

  std::int32_t max_num_seqs = 128;             // running requests at most
  std::int32_t max_num_batched_tokens = 2048;  // tokens scheduled in a step at most
  std::int32_t max_model_len = 8192;           // tokens of a sequence at most, outputs included
  bool enable_chunked_prefill = true;
  std::int32_t long_prefill_token_threshold =
      0;  // tokens of one prefill in a step at most; 0: no limit
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  // Admit a request only when its whole known sequence fits at that moment.
  bool scheduler_reserve_full_isl = true;
  // Schedule steps before the outputs of those before are there.
  bool async_scheduling = false;
  std::int32_t num_speculative_tokens = 0;
  bool use_eagle = false;      // the drafter needs look-ahead slots and EAGLE's look-up rule
  std::int32_t max_loras = 0;  // adapters in a step at most; 0: requests name none
  // Multimodal inputs, in embeddings: what the encoder computes in a step, and what its cache
  // holds.
  std::int32_t encoder_budget = 0;
  std::int32_t encoder_cache_size = 0;
  bool disable_chunked_mm_input = false;  // an input is not split over steps
  bool encoder_decoder = false;           // encoder inputs feed cross attention
  bool kv_events = false;  // StepResult carries what entered and left the prefix cache
  LoadFailurePolicy load_failure_policy = LoadFailurePolicy::kRecompute;
  Behavior behavior = Behavior::Corrected();

  // Every message names the field and its value.
  absl::Status Validate() const;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_ENGINE_CONFIG_H_
