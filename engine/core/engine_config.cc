#include "engine/core/engine_config.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/kv/kv_cache_manager.h"

namespace tally {
namespace {

absl::Status CheckRange(std::string_view field, std::int64_t value, std::int64_t least,
                        std::int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(field), ": ", value, ", wanted ", least, " to ", most));
}

}  // namespace

absl::Status EngineConfig::Validate() const {
  // Sums of two of these stay within 32 bits.
  constexpr std::int64_t kMaxTokens = 1 << 29;
  constexpr std::int64_t kMaxSequences = 1 << 20;
  absl::Status status = CheckRange("max_num_seqs", max_num_seqs, 1, kMaxSequences);
  status.Update(CheckRange("max_num_batched_tokens", max_num_batched_tokens, 1, kMaxTokens));
  status.Update(CheckRange("max_model_len", max_model_len, 1, kMaxTokens));
  status.Update(
      CheckRange("long_prefill_token_threshold", long_prefill_token_threshold, 0, kMaxTokens));
  status.Update(CheckRange("num_speculative_tokens", num_speculative_tokens, 0, 1024));
  status.Update(CheckRange("max_loras", max_loras, 0, kMaxSequences));
  status.Update(CheckRange("encoder_budget", encoder_budget, 0, kMaxTokens));
  status.Update(CheckRange("encoder_cache_size", encoder_cache_size, 0, kMaxTokens));
  if (!status.ok()) return status;
  if (max_num_batched_tokens < max_num_seqs) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_num_batched_tokens: ", max_num_batched_tokens,
                     ", wanted at least max_num_seqs ", max_num_seqs));
  }
  if (kv_events && kv.hash_algorithm != HashAlgorithm::kSha256Cbor) {
    return absl::InvalidArgumentError(
        "kv_events: on, wanted the hash algorithm sha256_cbor, whose values others know");
  }
  if (!enable_chunked_prefill && max_num_batched_tokens < max_model_len) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_num_batched_tokens: ", max_num_batched_tokens, ", wanted at least max_model_len ",
        max_model_len, " without chunked prefill"));
  }
  return KvCacheManager::Validate(kv);
}

}  // namespace tally
