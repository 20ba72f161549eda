// Mamba layers: a block holds one state of the whole sequence instead of the keys and values of its
// tokens (kv_cache.md GRP-40 to 48). Place i of a table is for the state after the tokens of block
// i; the entries behind the newest state are spares, which take the states after each draft.
//
// The modes differ in which states are kept. With block size 4, two spares x, and 18 tokens
// computed in steps of 8, 8 and 2:
//
//   none   one state for the whole request, since a block has max_model_len tokens    [s18 x x]
//   all    the state at the end of every block, each of which a later prompt can start from
//                                                            [-  -  -  s16 s18 x x], older ones
//          are given back as the sequence grows but stay in the prefix cache
//   align  the states at the ends of steps, which the scheduler cuts at block boundaries (SCH-60);
//          what lies between is never computed               [-  -  -  s16 s18 x x]
//
// "-" is the null block. Under "align" a request takes one block for the new state of each step
// that reaches another block, and its spares move along.
#ifndef TALLY_ENGINE_KV_MAMBA_H_
#define TALLY_ENGINE_KV_MAMBA_H_

#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/kv/attention_group.h"

namespace tally {

class Mamba final : public AttentionGroup {
 public:
  Mamba(const KvGroupSpec& spec, std::uint32_t index, BlockPool& pool, BlockTableStore& tables,
        bool caching, bool needs_go_below_zero)
      : AttentionGroup(spec, index, pool, tables),
        caching_(caching),
        needs_go_below_zero_(needs_go_below_zero) {}

  // Only the newest state is read.
  std::int32_t SkippedTokens(std::int32_t computed) const override { return computed - 1; }
  std::int32_t BlocksForAlone(std::int32_t tokens) const override;
  // The newest cached state, null blocks before it. One probe a block from the end.
  void FindLongestHit(const HitQuery& query, std::span<AttentionGroup* const> joint,
                      std::span<std::vector<BlockId>* const> hits) const override;
  void BeginStep() override { registered_this_step_.clear(); }
  void Reserve(std::size_t num_handles) override;

  std::int32_t BlocksNeeded(RequestHandle request, const BlockDemand& demand,
                            std::span<const BlockId> hits, std::int32_t most_blocks) const override;
  bool Grow(RequestHandle request, const BlockDemand& demand, std::uint32_t& first_new) override;
  void Register(RequestHandle request, std::int32_t tokens,
                std::span<const BlockHash> hashes) override;
  void RemoveSkipped(RequestHandle request, std::int32_t total_computed) override;
  void Free(RequestHandle request) override;
  std::int32_t SlotCapacity(RequestHandle request) const override;
  std::int32_t NextSkip(RequestHandle request) const override;

 private:
  // What mode "align" remembers of a request that holds blocks.
  struct Aligned {
    bool has_spares = false;  // its table grew at least once, and ends with its spares
    // Place of the state that the newest growth started from: free once the step is computed.
    std::optional<std::uint32_t> previous_state;
  };

  bool align() const { return spec_.mamba_mode == MambaMode::kAlign; }
  std::uint32_t num_spares() const { return static_cast<std::uint32_t>(spec_.speculative_blocks); }
  // Entries of a table under "align" that ends with the state after `tokens` tokens and the spares.
  std::uint32_t AlignedLength(std::int32_t tokens) const {
    return static_cast<std::uint32_t>(CeilDiv(tokens, block_size())) + num_spares();
  }
  // The demand with room for the spares; not for "align".
  BlockDemand WithSpares(const BlockDemand& demand) const;
  // Whether this step computes the state in `hits`, so that nobody can start from it yet (GRP-44).
  bool IsComputedInThisStep(std::span<const BlockId> hits) const;
  bool GrowAligned(RequestHandle request, std::int32_t tokens, std::uint32_t& first_new);

  const bool caching_;
  const bool needs_go_below_zero_;  // see Behavior::mamba_needs_go_below_zero
  std::vector<Aligned> aligned_;
  absl::flat_hash_set<BlockHash> registered_this_step_;  // group keys
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_MAMBA_H_
