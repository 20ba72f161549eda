// A KV cache manager driven by request names and token lists, for tests.
#ifndef TALLY_ENGINE_KV_KV_CACHE_MANAGER_FIXTURE_H_
#define TALLY_ENGINE_KV_KV_CACHE_MANAGER_FIXTURE_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/kv/kv_cache_manager.h"

namespace tally {

// Requests by name over a small pool; block size 4 and one full group unless said. `faithful` keeps
// the faults of the reference engine.
class KvCacheManagerTest : public testing::Test {
 protected:
  void Make(std::uint32_t num_blocks, std::vector<KvGroupSpec> groups = {}, std::int32_t budget = 8,
            bool caching = true, bool eagle = false, bool faithful = false) {
    KvCacheConfig config;
    config.block_size = 4;
    config.num_blocks = num_blocks;
    config.enable_prefix_caching = caching;
    config.groups = std::move(groups);
    config.max_model_len = 4096;
    config.max_num_batched_tokens = budget;
    config.use_eagle = eagle;
    config.window_cap_in_step_test = config.adopts_group_by_group = faithful;
    config.mamba_needs_go_below_zero = config.eagle_lengthens_mamba_hits = faithful;
    ASSERT_TRUE(KvCacheManager::Validate(config).ok()) << KvCacheManager::Validate(config);
    kv_ = std::make_unique<KvCacheManager>(config);
    hasher_ = std::make_unique<BlockHasher>(HashAlgorithm::kXxh3, 4);
    requests_.clear();
  }

  struct Fake {
    RequestHandle handle{0};
    std::vector<TokenId> tokens;
    BlockHashChain chain;
    std::int32_t computed = 0;
  };

  // `count` tokens that no other call with another start gives.
  static std::vector<TokenId> Tokens(TokenId start, std::size_t count) {
    std::vector<TokenId> tokens(count);
    std::iota(tokens.begin(), tokens.end(), start);
    return tokens;
  }
  static std::vector<TokenId> Join(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  }

  Fake& Add(const std::string& name, std::vector<TokenId> tokens) {
    Fake& added = requests_[name];
    added.handle = RequestHandle{static_cast<std::uint32_t>(requests_.size() - 1)};
    added.tokens = std::move(tokens);
    kv_->Reserve(requests_.size());
    return added;
  }

  // Looks up and allocates `count` tokens (all that are left if 0); answers whether there was room.
  bool Admit(const std::string& name, std::int32_t count = 0, std::int32_t external = 0,
             bool delay = false) {
    Fake& fake = requests_.at(name);
    hasher_->Extend({fake.tokens, {}}, {}, fake.chain);
    const auto known = static_cast<std::int32_t>(fake.tokens.size());
    kv_->FindLongestHit(fake.chain.hashes, known - 1, hit_);
    if (count == 0 && !delay) count = known - hit_.num_tokens - external;
    const AllocationRequest wanted{.known = known,
                                   .scheduled = count,
                                   .hit = &hit_,
                                   .external = external,
                                   .delay_registration = delay};
    if (!Allocate(fake, wanted)) return false;
    fake.computed = hit_.num_tokens + external + count;
    return true;
  }

  // The next `count` tokens of a request that holds blocks.
  bool Step(const std::string& name, std::int32_t count, std::int32_t lookahead = 0) {
    Fake& fake = requests_.at(name);
    hasher_->Extend({fake.tokens, {}}, {}, fake.chain);
    const AllocationRequest wanted{.computed = fake.computed,
                                   .known = static_cast<std::int32_t>(fake.tokens.size()),
                                   .scheduled = count,
                                   .lookahead = lookahead};
    if (!Allocate(fake, wanted)) return false;
    fake.computed += count;
    return true;
  }

  bool Allocate(Fake& fake, const AllocationRequest& wanted) {
    first_new_.assign(kv_->num_groups(), 0);
    const AllocationResult result =
        kv_->Allocate(fake.handle, wanted, fake.chain.hashes, first_new_);
    exhausted_ = result == AllocationResult::kPoolExhausted;
    std::vector<RequestHandle> handles;
    for (const auto& [name, request] : requests_) handles.push_back(request.handle);
    kv_->CheckInvariants(handles);
    return result == AllocationResult::kAllocated;
  }

  void Free(const std::string& name) {
    kv_->Free(requests_.at(name).handle);
    requests_.at(name).computed = 0;
  }
  std::vector<std::uint32_t> Table(const std::string& name, std::uint32_t group = 0) const {
    return Numbers(kv_->Table(requests_.at(name).handle, group));
  }
  std::vector<std::uint32_t> FreeQueue() const {
    const std::vector<BlockId> queue = kv_->pool().FreeQueue();
    return Numbers(queue);
  }
  void BeginStep() { kv_->BeginStep(); }
  std::vector<std::uint32_t> HitBlocks(std::uint32_t group = 0) const {
    return Numbers(hit_.blocks[group]);
  }
  static std::vector<std::uint32_t> Numbers(std::span<const BlockId> blocks) {
    std::vector<std::uint32_t> numbers;
    for (BlockId block : blocks) numbers.push_back(Index(block));
    return numbers;
  }
  // Takes a block's content away, as an eviction by id does.
  void Evict(std::uint32_t block) { const_cast<BlockPool&>(kv_->pool()).Evict(BlockId{block}); }
  std::int32_t HitOf(const std::vector<TokenId>& tokens) {
    BlockHashChain chain;
    hasher_->Extend({tokens, {}}, {}, chain);
    kv_->FindLongestHit(chain.hashes, static_cast<std::int32_t>(tokens.size()) - 1, hit_);
    return hit_.num_tokens;
  }

  static KvGroupSpec Full(std::int32_t size = 4) { return {AttentionKind::kFull, size, 0}; }
  static KvGroupSpec Window(std::int32_t window, std::int32_t size = 4) {
    return {AttentionKind::kSlidingWindow, size, window};
  }

  static KvGroupSpec MambaSpec(MambaMode mode, std::int32_t spares = 0) {
    KvGroupSpec spec{AttentionKind::kMamba, 4};
    spec.mamba_mode = mode;
    spec.speculative_blocks = spares;
    return spec;
  }

  std::unique_ptr<KvCacheManager> kv_;
  std::unique_ptr<BlockHasher> hasher_;
  std::map<std::string, Fake> requests_;
  PrefixHit hit_;
  std::vector<std::uint32_t> first_new_;
  bool exhausted_ = false;
};

}  // namespace tally

#endif  // TALLY_ENGINE_KV_KV_CACHE_MANAGER_FIXTURE_H_
