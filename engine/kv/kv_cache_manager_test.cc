// The worked examples of kv_cache.md section 9, whose ids were produced by the reference engine.
#include "engine/kv/kv_cache_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/kv/kv_cache_manager_fixture.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(KvCacheManagerTest, Ex1AllocateFreeReallocate) {
  Make(8);
  Add("a", Tokens(100, 10));
  Add("b", Tokens(200, 6));
  Add("c", Tokens(300, 12));
  EXPECT_THAT(FreeQueue(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  ASSERT_TRUE(Admit("a"));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 3));
  EXPECT_EQ(kv_->pool().num_cached(), 2U);
  ASSERT_TRUE(Admit("b"));
  EXPECT_THAT(Table("b"), ElementsAre(4, 5));
  EXPECT_DOUBLE_EQ(kv_->usage(), 0.7142857142857143);
  Free("a");
  EXPECT_THAT(FreeQueue(), ElementsAre(6, 7, 3, 2, 1));
  Free("b");
  EXPECT_THAT(FreeQueue(), ElementsAre(6, 7, 3, 2, 1, 5, 4));
  ASSERT_TRUE(Admit("c"));
  EXPECT_THAT(Table("c"), ElementsAre(6, 7, 3));
  EXPECT_THAT(FreeQueue(), ElementsAre(2, 1, 5, 4));
}

TEST_F(KvCacheManagerTest, Ex2HitRevivesBlocksFromTheMiddleOfTheQueue) {
  Make(8);
  Add("a", Tokens(100, 10));
  Add("b", Tokens(200, 6));
  Add("d", Join(Tokens(100, 8), Tokens(400, 3)));
  ASSERT_TRUE(Admit("a"));
  ASSERT_TRUE(Admit("b"));
  Free("a");
  Free("b");
  ASSERT_TRUE(Admit("d"));
  EXPECT_EQ(hit_.num_tokens, 8);
  EXPECT_THAT(Table("d"), ElementsAre(1, 2, 6));
  EXPECT_THAT(FreeQueue(), ElementsAre(7, 3, 5, 4));
  Free("d");
  EXPECT_THAT(FreeQueue(), ElementsAre(7, 3, 5, 4, 6, 2, 1));
}

TEST_F(KvCacheManagerTest, Ex3TheLastTokenIsNeverAHit) {
  Make(10);
  Add("a", Tokens(100, 8));
  Add("b", Tokens(100, 8));
  ASSERT_TRUE(Admit("a"));
  ASSERT_TRUE(Admit("b"));
  EXPECT_EQ(hit_.num_tokens, 4);
  EXPECT_THAT(Table("b"), ElementsAre(1, 3));
  EXPECT_EQ(kv_->pool().reference_count(BlockId{1}), 2);
  EXPECT_EQ(kv_->pool().num_cached(), 3U);  // the second block's content is cached twice
}

TEST_F(KvCacheManagerTest, Ex4DuplicatesAreAnsweredOldestFirst) {
  Make(6);
  Add("a", Tokens(100, 8));
  Add("b", Tokens(100, 8));
  Add("x", Tokens(500, 12));
  ASSERT_TRUE(Admit("a"));
  ASSERT_TRUE(Admit("b"));
  Free("a");
  Free("b");
  EXPECT_THAT(FreeQueue(), ElementsAre(4, 5, 2, 3, 1));
  const std::vector<TokenId> sibling = Join(Tokens(100, 8), Tokens(900, 1));
  EXPECT_EQ(HitOf(sibling), 8);
  EXPECT_THAT(HitBlocks(), ElementsAre(1, 2));
  ASSERT_TRUE(Admit("x"));
  EXPECT_THAT(Table("x"), ElementsAre(4, 5, 2));
  EXPECT_EQ(HitOf(sibling), 8);
  EXPECT_THAT(HitBlocks(), ElementsAre(1, 3));
}

TEST_F(KvCacheManagerTest, Ex5ResumptionFindsTheRequestsOwnBlocks) {
  Make(6);
  Fake& a = Add("a", Tokens(100, 8));
  ASSERT_TRUE(Admit("a"));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2));
  a.tokens.push_back(7);
  ASSERT_TRUE(Step("a", 1));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 3));
  EXPECT_EQ(first_new_[0], 2U);
  Free("a");
  EXPECT_THAT(FreeQueue(), ElementsAre(4, 5, 3, 2, 1));
  ASSERT_TRUE(Admit("a"));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 4));
  EXPECT_THAT(FreeQueue(), ElementsAre(5, 3));
}

TEST_F(KvCacheManagerTest, Ex6ABlockIsRegisteredOnceItsLastTokenIsKnown) {
  Make(6);
  Fake& a = Add("a", Tokens(100, 7));
  ASSERT_TRUE(Admit("a"));
  EXPECT_EQ(kv_->pool().num_cached(), 1U);
  ASSERT_TRUE(Step("a", 1));  // the token that fills block 2 is not known yet
  EXPECT_THAT(Table("a"), ElementsAre(1, 2));
  EXPECT_EQ(kv_->pool().num_cached(), 1U);
  a.tokens.push_back(7);
  ASSERT_TRUE(Step("a", 1));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 3));
  EXPECT_EQ(kv_->pool().num_cached(), 2U);
}

TEST_F(KvCacheManagerTest, Ex7LookaheadTakesSlotsButRegistersNothing) {
  Make(8);
  Fake& a = Add("a", Tokens(100, 6));
  hasher_->Extend({a.tokens, {}}, {}, a.chain);
  ASSERT_TRUE(Allocate(a, {.known = 6, .scheduled = 6, .lookahead = 3}));
  a.computed = 6;
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 3));
  EXPECT_EQ(kv_->pool().num_cached(), 1U);
  a.tokens.push_back(7);
  ASSERT_TRUE(Step("a", 4, 3));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(kv_->pool().num_cached(), 1U);
}

TEST_F(KvCacheManagerTest, Ex8RefusalChangesNothingAndHeldHitsCostNothing) {
  Make(4);
  Add("a", Tokens(100, 8));
  Add("b", Tokens(200, 12));
  Add("c", Join(Tokens(100, 8), Tokens(300, 4)));
  Add("d", Join(Join(Tokens(100, 8), Tokens(300, 4)), Tokens(400, 4)));
  ASSERT_TRUE(Admit("a"));
  EXPECT_FALSE(Admit("b"));
  EXPECT_THAT(FreeQueue(), ElementsAre(3));
  EXPECT_THAT(Table("b"), IsEmpty());
  ASSERT_TRUE(Admit("c"));
  EXPECT_THAT(Table("c"), ElementsAre(1, 2, 3));
  Free("a");
  Free("c");
  EXPECT_THAT(FreeQueue(), ElementsAre(3, 2, 1));
  EXPECT_FALSE(Admit("d"));  // three revived blocks and a fresh one
  EXPECT_EQ(hit_.num_tokens, 12);
  EXPECT_THAT(FreeQueue(), ElementsAre(3, 2, 1));
}

TEST_F(KvCacheManagerTest, Ex9CommonPrefixCountsBlocksThatAllOwnersShare) {
  Make(12);
  Add("a", Tokens(100, 12));
  Add("b", Join(Tokens(100, 8), Tokens(200, 3)));
  Add("c", Tokens(300, 5));
  std::int32_t common[1];
  const auto common_of = [&](const std::string& name) {
    kv_->CommonPrefixBlocks(requests_.at(name).handle, common);
    return common[0];
  };
  ASSERT_TRUE(Admit("a"));
  EXPECT_EQ(common_of("a"), 3);
  ASSERT_TRUE(Admit("b"));
  EXPECT_THAT(Table("b"), ElementsAre(1, 2, 4));
  EXPECT_EQ(common_of("a"), 2);
  EXPECT_EQ(common_of("b"), 2);
  ASSERT_TRUE(Admit("c"));
  EXPECT_EQ(common_of("a"), 0);
  EXPECT_EQ(common_of("c"), 0);
  Free("c");
  EXPECT_EQ(common_of("a"), 2);
  Free("b");
  EXPECT_EQ(common_of("a"), 3);
}

TEST_F(KvCacheManagerTest, Ex11WindowGivesBlocksBackAndServesHitsFromTheEnd) {
  Make(20, {Window(8)});
  Fake& a = Add("a", Tokens(100, 30));
  ASSERT_TRUE(Admit("a", 8));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2));
  ASSERT_TRUE(Step("a", 8));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 3, 4));
  ASSERT_TRUE(Step("a", 8));
  EXPECT_THAT(Table("a"), ElementsAre(0, 0, 3, 4, 5, 6));
  ASSERT_TRUE(Step("a", 6));
  EXPECT_THAT(Table("a"), ElementsAre(0, 0, 0, 0, 5, 6, 7, 8));
  EXPECT_THAT(FreeQueue(), ElementsAre(9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 2, 1, 4, 3));
  Add("b", a.tokens);
  ASSERT_TRUE(Admit("b"));
  EXPECT_EQ(hit_.num_tokens, 28);
  EXPECT_THAT(HitBlocks(), ElementsAre(0, 0, 0, 0, 0, 6, 7));
  EXPECT_THAT(Table("b"), ElementsAre(0, 0, 0, 0, 0, 6, 7, 9));
}

TEST_F(KvCacheManagerTest, Ex12WindowHitsNeedAWholeWindowOrTheStart) {
  Make(20, {Window(8)}, 64);
  const std::vector<TokenId> tokens = Tokens(100, 20);
  Add("a", tokens);
  ASSERT_TRUE(Admit("a"));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 3, 4, 5));
  const std::vector<TokenId> sibling = Join(tokens, Tokens(900, 1));
  Evict(4);
  EXPECT_EQ(HitOf(sibling), 12);
  EXPECT_THAT(HitBlocks(), ElementsAre(0, 2, 3));
  Evict(2);
  EXPECT_EQ(HitOf(sibling), 4);
  EXPECT_THAT(HitBlocks(), ElementsAre(1));
}

TEST_F(KvCacheManagerTest, Ex12EagleDropsTheLastBlockOfAWindow) {
  Make(20, {Window(8)}, 64, true, true);
  const std::vector<TokenId> tokens = Tokens(100, 20);
  Add("a", tokens);
  ASSERT_TRUE(Admit("a"));
  EXPECT_EQ(HitOf(Join(tokens, Tokens(900, 1))), 16);
  EXPECT_THAT(HitBlocks(), ElementsAre(0, 0, 3, 4));
}

TEST_F(KvCacheManagerTest, Ex13HybridHitIsTheLongestThatAllGroupsServe) {
  Make(30, {Full(), Window(8)}, 64);
  const std::vector<TokenId> tokens = Tokens(100, 21);
  const std::vector<TokenId> sibling = Join(Tokens(100, 20), Tokens(900, 1));
  Add("a", tokens);
  ASSERT_TRUE(Admit("a"));
  EXPECT_THAT(Table("a", 0), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Table("a", 1), ElementsAre(7, 8, 9, 10, 11, 12));
  EXPECT_EQ(HitOf(sibling), 20);
  EXPECT_THAT(HitBlocks(0), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(HitBlocks(1), ElementsAre(0, 0, 0, 10, 11));
  Evict(11);
  EXPECT_EQ(HitOf(sibling), 16);
  EXPECT_THAT(HitBlocks(1), ElementsAre(0, 0, 9, 10));
  Evict(3);
  EXPECT_EQ(HitOf(sibling), 8);
  EXPECT_THAT(HitBlocks(0), ElementsAre(1, 2));
  EXPECT_THAT(HitBlocks(1), ElementsAre(7, 8));
  Add("s", sibling);
  ASSERT_TRUE(Admit("s"));
  EXPECT_THAT(Table("s", 0), ElementsAre(1, 2, 13, 14, 15, 16));
  EXPECT_THAT(Table("s", 1), ElementsAre(7, 8, 17, 18, 19, 20));
  Free("a");
  EXPECT_THAT(FreeQueue(),
              ElementsAre(21, 22, 23, 24, 25, 26, 27, 28, 29, 6, 5, 4, 3, 12, 11, 10, 9));
  Free("s");
  EXPECT_THAT(FreeQueue(), ElementsAre(21, 22, 23, 24, 25, 26, 27, 28, 29, 6, 5, 4, 3, 12, 11, 10,
                                       9, 16, 15, 14, 13, 2, 1, 20, 19, 18, 17, 8, 7));
}

TEST_F(KvCacheManagerTest, Ex14SearchRepeatsUntilAllWindowsAgree) {
  Make(30, {Full(), Window(8), Window(12)}, 64);
  Add("a", Tokens(100, 33));
  ASSERT_TRUE(Admit("a"));
  const std::vector<TokenId> sibling = Join(Tokens(100, 32), Tokens(900, 1));
  EXPECT_EQ(HitOf(sibling), 32);
  Evict(Table("a", 2)[7]);
  Evict(Table("a", 1)[5]);
  EXPECT_EQ(HitOf(sibling), 20);
  EXPECT_THAT(HitBlocks(0), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(HitBlocks(1), ElementsAre(0, 0, 0, 13, 14));
  EXPECT_THAT(HitBlocks(2), ElementsAre(0, 0, 21, 22, 23));
}

TEST_F(KvCacheManagerTest, Ex14HitsAreAlignedToTheLargestBlock) {
  Make(30, {Full(8), Window(8, 4)}, 64);
  Add("a", Tokens(100, 30));
  ASSERT_TRUE(Admit("a"));
  EXPECT_THAT(Table("a", 0), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Table("a", 1), ElementsAre(5, 6, 7, 8, 9, 10, 11, 12));
  EXPECT_EQ(HitOf(Join(Tokens(100, 30), Tokens(900, 1))), 24);
  EXPECT_THAT(HitBlocks(0), ElementsAre(1, 2, 3));
  EXPECT_THAT(HitBlocks(1), ElementsAre(0, 0, 0, 0, 9, 10));
}

// kv_cache.md DEF-1: one group's external blocks are another group's hits.
TEST_F(KvCacheManagerTest, Ex15AGroupMayTakeAnothersHitsUnlessAllHoldOnToThemFirst) {
  for (const bool faithful : {true, false}) {
    Make(17, {Full(), Window(8)}, 8, true, false, faithful);
    Add("a", Tokens(100, 24));
    Add("y", Tokens(200, 8));
    Add("b", Join(Tokens(100, 8), Tokens(300, 5)));
    ASSERT_TRUE(Admit("a", 8));
    ASSERT_TRUE(Admit("y"));
    ASSERT_TRUE(Step("a", 8));
    ASSERT_TRUE(Step("a", 8));
    EXPECT_THAT(Table("a", 1), ElementsAre(0, 0, 11, 12, 15, 16));
    Free("y");
    EXPECT_THAT(FreeQueue(), ElementsAre(4, 3, 6, 5, 8, 7));
    ASSERT_TRUE(Admit("b", 1, 4));
    if (faithful) {
      EXPECT_THAT(Table("b", 0), ElementsAre(1, 2, 4, 6));
      EXPECT_THAT(Table("b", 1), ElementsAre(0, 4, 3, 5));  // block 4 twice
    } else {
      EXPECT_THAT(Table("b", 0), ElementsAre(1, 2, 3, 5));
      EXPECT_THAT(Table("b", 1), ElementsAre(0, 4, 6, 8));
    }
  }
}

// kv_cache.md DEF-2: the cap lets a step pass its test without room.
TEST_F(KvCacheManagerTest, Ex16TheCapOfAWindowEndsAStepInTheMiddleUnlessItServesAdmissionOnly) {
  for (const bool faithful : {true, false}) {
    Make(6, {Window(8)}, 4, true, false, faithful);
    Fake& a = Add("a", Tokens(100, 12));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(i == 0 ? Admit("a", 4) : Step("a", 4));
    for (int i = 0; i < 4; ++i) {
      a.tokens.push_back(500 + i);
      ASSERT_TRUE(Step("a", 1));
    }
    EXPECT_THAT(Table("a"), ElementsAre(0, 0, 3, 4));
    EXPECT_THAT(FreeQueue(), ElementsAre(5, 1, 2));
    Add("z", Tokens(300, 10));
    ASSERT_TRUE(Admit("z"));
    a.tokens.push_back(504);
    EXPECT_FALSE(Step("a", 1));
    EXPECT_EQ(exhausted_, faithful);
  }
}

TEST_F(KvCacheManagerTest, Ex17ExternalTokensGetBlocksAndAreRegisteredAtOnceOrLater) {
  Make(12);
  Add("a", Tokens(100, 12));
  ASSERT_TRUE(Admit("a", 6, 6));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 3));
  EXPECT_EQ(first_new_[0], 2U);
  EXPECT_EQ(kv_->pool().num_cached(), 3U);
  Fake& b = Add("b", Tokens(200, 13));
  ASSERT_TRUE(Admit("b", 0, 12, true));
  EXPECT_THAT(Table("b"), ElementsAre(4, 5, 6));
  EXPECT_EQ(kv_->pool().num_cached(), 3U);
  kv_->Register(b.handle, 12, b.chain.hashes);
  EXPECT_EQ(kv_->pool().num_cached(), 6U);
  kv_->Register(b.handle, 12, b.chain.hashes);  // INV-17: idempotent
  EXPECT_EQ(kv_->pool().num_cached(), 6U);
}

TEST_F(KvCacheManagerTest, Ex17AWindowNeverAllocatesWhatItHasPassed) {
  Make(12, {Window(8)}, 64);
  Add("a", Tokens(100, 23));
  ASSERT_TRUE(Admit("a", 3, 20));
  EXPECT_THAT(Table("a"), ElementsAre(0, 0, 0, 1, 2, 3));
}

TEST_F(KvCacheManagerTest, Ex19ResetWantsAnIdlePoolAndKeepsTheQueue) {
  Make(4);
  Add("a", Tokens(100, 8));
  ASSERT_TRUE(Admit("a"));
  EXPECT_FALSE(kv_->ResetPrefixCache());
  EXPECT_EQ(kv_->pool().num_cached(), 2U);
  Free("a");
  EXPECT_TRUE(kv_->ResetPrefixCache());
  EXPECT_THAT(FreeQueue(), ElementsAre(3, 2, 1));
  EXPECT_EQ(HitOf(Tokens(100, 9)), 0);
}

TEST_F(KvCacheManagerTest, Ex20ARefusedWindowKeepsWhatItGaveBack) {
  Make(7, {Full(), Window(4)}, 4);
  Add("a", Tokens(100, 12));
  Add("z", Tokens(300, 4));
  ASSERT_TRUE(Admit("a", 4));
  ASSERT_TRUE(Step("a", 4));
  EXPECT_THAT(Table("a", 0), ElementsAre(1, 3));
  EXPECT_THAT(Table("a", 1), ElementsAre(2, 4));
  ASSERT_TRUE(Admit("z"));
  EXPECT_FALSE(Step("a", 4));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 4));
  EXPECT_THAT(FreeQueue(), ElementsAre(2));
}

TEST_F(KvCacheManagerTest, WithoutCachingNothingIsFoundOrCommon) {
  Make(8, {}, 8, false);
  Add("a", Tokens(100, 8));
  ASSERT_TRUE(Admit("a"));
  std::int32_t common[1] = {7};
  kv_->CommonPrefixBlocks(requests_.at("a").handle, common);
  EXPECT_EQ(common[0], 0);
  EXPECT_EQ(HitOf(Tokens(100, 9)), 0);
}

TEST_F(KvCacheManagerTest, HoldsAlreadyIsTrueOnlyWhileAllocateWouldDoNothing) {
  Make(8);
  Fake& a = Add("a", Tokens(100, 5));
  ASSERT_TRUE(Admit("a"));
  EXPECT_TRUE(kv_->HoldsAlready(a.handle, 6, 6, 5));
  EXPECT_TRUE(kv_->HoldsAlready(a.handle, 8, 7, 7));
  EXPECT_FALSE(kv_->HoldsAlready(a.handle, 9, 7, 7));  // wants a third block
  EXPECT_FALSE(kv_->HoldsAlready(a.handle, 8, 8, 7));  // the second block becomes full
  Free("a");
  EXPECT_FALSE(kv_->HoldsAlready(a.handle, 1, 1, 0));
}

TEST(KvCacheConfigTest, EveryRefusalNamesFieldAndValue) {
  const auto message = [](auto change) {
    KvCacheConfig config;
    config.block_size = 4;
    config.num_blocks = 8;
    change(config);
    return std::string(KvCacheManager::Validate(config).message());
  };
  using C = KvCacheConfig;
  EXPECT_EQ(message([](C&) {}), "");
  EXPECT_EQ(message([](C& c) { c.block_size = 0; }), "block_size: 0, wanted 1 to 1048576 tokens");
  EXPECT_EQ(message([](C& c) { c.num_blocks = 0; }), "num_blocks: 0, wanted 1 to 16777216 blocks");
  EXPECT_EQ(message([](C& c) { c.num_blocks = 1U << 30; }),
            "num_blocks: 1073741824, wanted 1 to 16777216 blocks");
  EXPECT_EQ(message([](C& c) {
              c.groups = {{AttentionKind::kFull, 6, 0}};
            }),
            "groups[0].block_size: 6, wanted a multiple of block_size 4");
  EXPECT_EQ(message([](C& c) {
              c.groups = {{AttentionKind::kSlidingWindow, 4, 0}};
            }),
            "groups[0].window: 0, wanted 1 to 1073741824 tokens");
  EXPECT_EQ(message([](C& c) {
              c.groups = {{AttentionKind::kFull, 8, 0}};
            }),
            "groups[0].block_size: 8, wanted block_size 4, since there is one group");
  EXPECT_EQ(message([](C& c) {
              c.groups = {{AttentionKind::kFull, 4, 0}, {AttentionKind::kFull, 4, 0}};
            }),
            "groups: all equal, wanted at least two distinct ones with prefix caching");
}

}  // namespace
}  // namespace tally
