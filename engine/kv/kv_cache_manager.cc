#include "engine/kv/kv_cache_manager.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace tally {
namespace {

// 16.7 million blocks: a pool of one gigabyte of bookkeeping, two hundred times the blocks of a
// large GPU.
constexpr std::uint32_t kMaxBlocks = 1U << 24;
constexpr std::int32_t kMaxBlockSize = 1 << 20;

KvCacheConfig WithDefaultGroup(KvCacheConfig config) {
  if (config.groups.empty()) {
    config.groups.push_back(
        {.kind = AttentionKind::kFull, .block_size = config.block_size, .window = 0});
  }
  return config;
}

std::vector<std::unique_ptr<AttentionGroup>> CreateGroups(const KvCacheConfig& config,
                                                          BlockPool& pool,
                                                          BlockTableStore& tables) {
  std::vector<std::unique_ptr<AttentionGroup>> groups;
  for (std::uint32_t i = 0; i < config.groups.size(); ++i) {
    groups.push_back(AttentionGroup::Create(config, i, pool, tables));
  }
  return groups;
}

absl::Status Invalid(std::string_view field, std::int64_t value, std::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(field), ": ", value, ", wanted ", std::string(wanted)));
}

}  // namespace

absl::Status KvCacheManager::Validate(const KvCacheConfig& given) {
  const KvCacheConfig config = WithDefaultGroup(given);
  if (config.block_size < 1 || config.block_size > kMaxBlockSize) {
    return Invalid("block_size", config.block_size, "1 to 1048576 tokens");
  }
  if (config.num_blocks < 1 || config.num_blocks > kMaxBlocks) {
    return Invalid("num_blocks", config.num_blocks, "1 to 16777216 blocks");
  }
  if (config.groups.size() > kMaxKvGroups) {
    return Invalid("groups", static_cast<std::int64_t>(config.groups.size()), "at most 16 groups");
  }
  bool distinct = false;
  for (std::size_t i = 0; i < config.groups.size(); ++i) {
    const KvGroupSpec& group = config.groups[i];
    const std::string field = absl::StrCat("groups[", i, "]");
    if (group.block_size < 1 || group.block_size > kMaxBlockSize ||
        group.block_size % config.block_size != 0) {
      return Invalid(field + ".block_size", group.block_size,
                     absl::StrCat("a multiple of block_size ", config.block_size));
    }
    if (group.kind == AttentionKind::kChunkedLocal &&
        (group.chunk < 1 || group.chunk > (1 << 30))) {
      return Invalid(field + ".chunk", group.chunk, "1 to 1073741824 tokens");
    }
    if (group.speculative_blocks < 0 || group.speculative_blocks > 1024) {
      return Invalid(field + ".speculative_blocks", group.speculative_blocks, "0 to 1024");
    }
    const bool caches = config.enable_prefix_caching;
    if (group.kind == AttentionKind::kMamba && caches && group.mamba_mode == MambaMode::kNone) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".mode: none, wanted all or align with prefix caching"));
    }
    if (group.kind == AttentionKind::kCross && caches) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".type: cross_attention, wanted enable_prefix_caching off"));
    }
    if (group.kind == AttentionKind::kSlidingWindow &&
        (group.window < 1 || group.window > (1 << 30))) {
      return Invalid(field + ".window", group.window, "1 to 1073741824 tokens");
    }
    distinct |= !(group == config.groups[0]);
  }
  if (config.groups.size() == 1 && config.groups[0].block_size != config.block_size) {
    return Invalid("groups[0].block_size", config.groups[0].block_size,
                   absl::StrCat("block_size ", config.block_size, ", since there is one group"));
  }
  if (config.groups.size() > 1 && config.enable_prefix_caching && !distinct) {
    return absl::InvalidArgumentError(
        "groups: all equal, wanted at least two distinct ones with prefix caching");
  }
  return absl::OkStatus();
}

KvCacheManager::KvCacheManager(const KvCacheConfig& config)
    : config_(WithDefaultGroup(config)),
      pool_(config_.num_blocks, config_.enable_prefix_caching),
      groups_(CreateGroups(config_, pool_, tables_)),
      search_(groups_, config_) {
  const auto is_mamba = [](const auto& group) {
    return group->spec().kind == AttentionKind::kMamba;
  };
  if (std::none_of(groups_.begin(), groups_.end(), is_mamba)) return;
  for (const auto& group : groups_) {
    if (group->spec().kind == AttentionKind::kFull) group->NoteFreshBlocks();
  }
}

void KvCacheManager::Reserve(std::size_t num_handles) {
  if (num_handles <= limits_.size()) return;
  for (const auto& group : groups_) group->Reserve(num_handles);
  limits_.resize(num_handles);
}

void KvCacheManager::FindLongestHit(std::span<const BlockHash> hashes, std::int32_t max_tokens,
                                    PrefixHit& hit) {
  hit.blocks.resize(groups_.size());
  hit.Clear();
  if (config_.enable_prefix_caching && max_tokens > 0) search_.Find(hashes, max_tokens, hit);
  if (config_.eagle_lengthens_mamba_hits) return;
  for (std::uint32_t g = 0; g < num_groups(); ++g) {
    TALLY_CHECK(static_cast<std::int64_t>(hit.blocks[g].size()) * groups_[g]->block_size() ==
                    hit.num_tokens,
                "group %u: %zu blocks for a hit of %d tokens", g, hit.blocks[g].size(),
                hit.num_tokens);
  }
}

bool KvCacheManager::FitsWholeSequence(RequestHandle request, std::int32_t known,
                                       std::int32_t computed, const PrefixHit& hit,
                                       std::int32_t external, std::int32_t encoder,
                                       std::int64_t reserved) const {
  const std::int32_t total = std::min(computed + hit.num_tokens + external, config_.max_model_len);
  const std::int32_t full = std::min(known, config_.max_model_len);
  std::int64_t needed = reserved;
  for (std::uint32_t g = 0; g < num_groups(); ++g) {
    const BlockDemand demand{.slots = full, .main = full, .computed = total, .encoder = encoder};
    needed += groups_[g]->BlocksNeeded(request, demand, HitBlocks(&hit, g), groups_[g]->BlockCap());
  }
  return needed <= pool_.num_free();
}

std::int64_t KvCacheManager::BlocksMissing(RequestHandle request, std::int32_t tokens) const {
  std::int64_t missing = 0;
  for (const auto& group : groups_) {
    const auto held = static_cast<std::int64_t>(group->Table(request).size());
    missing += std::max<std::int64_t>(0, group->BlocksForAlone(tokens) - held);
  }
  return missing;
}

bool KvCacheManager::FitsEmptyPool(std::int32_t tokens) const {
  std::int64_t needed = 0;
  for (const auto& group : groups_) needed += group->BlocksForAlone(tokens);
  return needed <= pool_.num_blocks() - 1;
}

AllocationResult KvCacheManager::Allocate(RequestHandle request, const AllocationRequest& args,
                                          std::span<const BlockHash> hashes,
                                          std::span<std::uint32_t> first_new_block) {
  const std::int32_t hit_tokens = args.hit == nullptr ? 0 : args.hit->num_tokens;
  TALLY_CHECK(args.scheduled != 0 || args.external != 0, "an allocation for no token");
  const std::int32_t local = args.computed + hit_tokens;
  const std::int32_t total = std::min(local + args.external, config_.max_model_len);
  const BlockDemand demand{
      .slots = std::min(total + args.scheduled + args.lookahead, config_.max_model_len),
      .main = total + args.scheduled,
      .computed = local + args.external,
      .encoder = args.encoder};

  for (const auto& group : groups_) group->RemoveSkipped(request, total);
  std::int64_t needed = 0;
  for (std::uint32_t g = 0; g < num_groups(); ++g) {
    const std::int32_t most =
        config_.window_cap_in_step_test ? groups_[g]->BlockCap() : AttentionGroup::kNoCap;
    needed += groups_[g]->BlocksNeeded(request, demand, HitBlocks(args.hit, g), most);
  }
  if (needed > pool_.num_free()) {
    UpdateLimits(request);
    return AllocationResult::kNoSpace;
  }
  bool has_prefix = args.external > 0;
  for (std::uint32_t g = 0; g < num_groups(); ++g) has_prefix |= !HitBlocks(args.hit, g).empty();
  if (has_prefix) {
    // All groups hold on to their hits before any takes fresh blocks, which might be another's
    // hits.
    const std::int32_t adopted = local + args.external;
    for (std::uint32_t g = 0; g < num_groups(); ++g) {
      groups_[g]->AdoptHits(request, HitBlocks(args.hit, g), adopted);
      if (config_.adopts_group_by_group && args.external > 0 &&
          !groups_[g]->GrowToExternal(request, adopted)) {
        return Exhausted(*groups_[g]);
      }
    }
    for (std::uint32_t g = 0; args.external > 0 && g < num_groups(); ++g) {
      if (!groups_[g]->GrowToExternal(request, adopted)) return Exhausted(*groups_[g]);
    }
  }
  for (std::uint32_t g = 0; g < num_groups(); ++g) {
    if (!groups_[g]->Grow(request, demand, first_new_block[g])) return Exhausted(*groups_[g]);
  }
  if (!args.delay_registration)
    Register(request, std::min(total + args.scheduled, args.known), hashes);
  UpdateLimits(request);
  return AllocationResult::kAllocated;
}

AllocationResult KvCacheManager::Exhausted(const AttentionGroup& group) {
  growth_fault_ = group.growth_fault();
  return AllocationResult::kPoolExhausted;
}

void KvCacheManager::Register(RequestHandle request, std::int32_t tokens,
                              std::span<const BlockHash> hashes) {
  if (!config_.enable_prefix_caching) return;
  for (const auto& group : groups_) {
    if (tokens < group->NextRegistration(request)) continue;
    group->Register(request, tokens, search_.HashesAt(group->block_size(), hashes));
  }
  UpdateLimits(request);
}

void KvCacheManager::Free(RequestHandle request) {
  for (const auto& group : groups_) group->Free(request);
  UpdateLimits(request);
}

void KvCacheManager::CommonPrefixBlocks(RequestHandle request, std::span<std::int32_t> blocks) {
  for (std::uint32_t g = 0; g < num_groups(); ++g) {
    blocks[g] = config_.enable_prefix_caching ? groups_[g]->CommonPrefixBlocks(request) : 0;
  }
}

void KvCacheManager::UpdateLimits(RequestHandle request) {
  constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();
  Limits limits{kNever, kNever, kNever};
  for (const auto& group : groups_) {
    limits.slots = std::min(limits.slots, group->SlotCapacity(request));
    if (config_.enable_prefix_caching)
      limits.registration = std::min(limits.registration, group->NextRegistration(request));
    limits.skip = std::min(limits.skip, group->NextSkip(request));
  }
  limits_[Index(request)] = limits;
}

void KvCacheManager::CheckInvariants(std::span<const RequestHandle> handles) const {
  pool_.CheckInvariants();
  std::vector<std::int32_t> references(pool_.num_blocks(), 0);
  for (const auto& group : groups_) {
    std::int32_t owners = 0;
    for (RequestHandle request : handles) {
      const std::span<const BlockId> table = group->Table(request);
      owners += table.empty() ? 0 : 1;
      bool seen_block = false;
      for (BlockId block : table) {
        if (block == kNullBlock) {
          TALLY_CHECK(!seen_block || group->spec().kind == AttentionKind::kMamba,
                      "request %u: a null block behind a block", Index(request));
          TALLY_CHECK(group->spec().kind != AttentionKind::kFull,
                      "request %u: null block in a full table", Index(request));
          continue;
        }
        seen_block = true;
        ++references[Index(block)];
      }
    }
    TALLY_CHECK(owners == group->num_owners(), "group %u: %d owners, counted %d", group->index(),
                owners, group->num_owners());
  }
  for (std::uint32_t id = 1; id < pool_.num_blocks(); ++id) {
    TALLY_CHECK(references[id] == pool_.reference_count(BlockId{id}),
                "block %u: %d references, %d in tables", id, pool_.reference_count(BlockId{id}),
                references[id]);
  }
}

}  // namespace tally
