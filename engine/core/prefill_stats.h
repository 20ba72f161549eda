// Where the KV of a request's prompt came from, recorded at its first scheduled prefill and
// delivered once, with the request's first output (scheduler.md 1.4, metrics.md 1.1; vllm #37460).
#ifndef TALLY_ENGINE_CORE_PREFILL_STATS_H_
#define TALLY_ENGINE_CORE_PREFILL_STATS_H_

#include <cstdint>

#include "engine/base/check.h"

namespace tally {

// All in tokens. computed + cached = prompt, local + external = cached, nothing negative.
struct PrefillStats {
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_computed_tokens = 0;
  std::int32_t num_cached_tokens = 0;
  std::int32_t num_local_cached_tokens = 0;
  std::int32_t num_external_cached_tokens = 0;

  // Wants local, external >= 0 and local + external <= prompt (PS-2).
  static PrefillStats Of(std::int32_t prompt, std::int32_t local, std::int32_t external) {
    TALLY_CHECK(local >= 0 && external >= 0 && external <= prompt - local,
                "prompt %d, local %d, external %d", prompt, local, external);
    return {prompt, prompt - local - external, local + external, local, external};
  }

  friend bool operator==(const PrefillStats&, const PrefillStats&) = default;
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_PREFILL_STATS_H_
