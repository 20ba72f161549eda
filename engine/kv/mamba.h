// Mamba layers: a block holds one state of the whole sequence instead of the KV of its tokens
// (kv_cache.md GRP-40 to 48).
//
// Mode "none" keeps one state a request. Mode "all" keeps the state at the end of every block, so
// that prefixes can be found. Mode "align" keeps the states at the ends of steps only, which the
// scheduler cuts at block boundaries; the table then has null blocks between states. Every request
// owns spare states for drafts at the end of its table.
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
  bool GrowToExternal(RequestHandle request, std::int32_t tokens) override;
  bool Grow(RequestHandle request, const BlockDemand& demand, std::uint32_t& first_new) override;
  void Register(RequestHandle request, std::int32_t tokens,
                std::span<const BlockHash> hashes) override;
  void RemoveSkipped(RequestHandle request, std::int32_t total_computed) override;
  void Free(RequestHandle request) override;
  std::int32_t SlotCapacity(RequestHandle request) const override;
  // States move at every step under "align": no step is without work.
  std::int32_t NextSkip(RequestHandle request) const override;

 private:
  // What mode "align" remembers of a request that holds blocks.
  struct Aligned {
    bool allocated = false;  // got its spare states
    std::optional<std::uint32_t> last_state;
  };

  bool align() const { return spec_.mamba_mode == MambaMode::kAlign; }
  std::uint32_t spares() const { return static_cast<std::uint32_t>(spec_.speculative_blocks); }
  BlockDemand WithSpares(const BlockDemand& demand) const;
  bool GrowAligned(RequestHandle request, const BlockDemand& demand, std::uint32_t& first_new);

  const bool caching_;
  const bool needs_go_below_zero_;
  std::vector<Aligned> aligned_;
  // Keys that were registered in this step: their states are not computed yet, so nobody may start
  // from them (GRP-44).
  absl::flat_hash_set<BlockHash> registered_this_step_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_MAMBA_H_
