// The shape of the KV cache that the scheduler manages.
#ifndef TALLY_ENGINE_KV_KV_CACHE_CONFIG_H_
#define TALLY_ENGINE_KV_KV_CACHE_CONFIG_H_

#include <cstdint>
#include <vector>

#include "engine/kv/block_hasher.h"

namespace tally {

enum class AttentionKind : std::uint8_t { kFull, kSlidingWindow, kChunkedLocal, kMamba, kCross };

// Which states of a Mamba layer are kept (GRP-40 to 46): one a request, one for each block, or
// those at the ends of steps.
enum class MambaMode : std::uint8_t { kNone, kAll, kAlign };

// One KV cache group (kv_cache.md section 4). Groups with equal specs are searched together.
struct KvGroupSpec {
  AttentionKind kind = AttentionKind::kFull;
  std::int32_t block_size = 16;  // tokens a block
  std::int32_t window = 0;       // tokens that a sliding window sees, the current one included
  std::int32_t chunk = 0;        // tokens of a chunk of chunked local attention
  MambaMode mamba_mode = MambaMode::kNone;
  std::int32_t speculative_blocks = 0;  // spare Mamba states of a request, for drafts

  friend bool operator==(const KvGroupSpec&, const KvGroupSpec&) = default;
};

// More groups than any model has (hybrid models have 2 to 6); bounds arrays on the stack.
inline constexpr std::uint32_t kMaxKvGroups = 16;

struct KvCacheConfig {
  // Tokens a block hash; divides the block size of every group and equals it when there is just
  // one.
  std::int32_t block_size = 16;
  std::uint32_t num_blocks = 0;  // the null block included
  bool enable_prefix_caching = true;
  std::vector<KvGroupSpec> groups;  // empty: one group of full attention
  HashAlgorithm hash_algorithm = HashAlgorithm::kXxh3;
  std::uint64_t hash_seed = 0;

  // Copies of the scheduler's limits, which bound what one request can need in a window (GRP-23).
  std::int32_t max_model_len = 0;
  std::int32_t max_num_batched_tokens = 0;
  // The drafter is of the EAGLE kind: the last matched block is computed again (GRP-6).
  bool use_eagle = false;

  // Faults of the reference engine, kept where its decisions are to be reproduced; see Behavior.
  bool window_cap_in_step_test = false;     // DEF-2
  bool adopts_group_by_group = false;       // DEF-1
  bool mamba_needs_go_below_zero = false;   // DEF-3
  bool eagle_lengthens_mamba_hits = false;  // GRP-72
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_KV_CACHE_CONFIG_H_
