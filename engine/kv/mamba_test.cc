// Mamba groups: kv_cache.md GRP-40 to 48 and how they share hits with other groups. All block ids
// were produced by the reference engine, but for those of the corrected behaviour.
#include "engine/kv/mamba.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/kv/kv_cache_manager_fixture.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr bool kCaching = true;
constexpr bool kEagle = true;
constexpr bool kFaithful = true;

class MambaTest : public KvCacheManagerTest {
 protected:
  // The drafts of the last step were refused but for `accepted` ones.
  void Refuse(const std::string& name, std::int32_t drafts, std::int32_t accepted) {
    Fake& fake = requests_.at(name);
    fake.computed -= drafts - accepted;
    for (std::int32_t i = 0; i <= accepted; ++i) fake.tokens.push_back(700 + i);
  }
};

TEST_F(MambaTest, ModeNoneKeepsOneBlockAndTheSpares) {
  KvGroupSpec spec = MambaSpec(MambaMode::kNone, 1);
  Make(8, {spec}, 64, !kCaching);
  Fake& a = Add("a", Tokens(100, 3));
  ASSERT_TRUE(Admit("a"));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2));
  a.tokens.push_back(500);
  ASSERT_TRUE(Step("a", 1));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2));
}

TEST_F(MambaTest, Ex18ModeAllFindsTheNewestStateButNotInTheStepThatComputesIt) {
  Make(30, {Full(), MambaSpec(MambaMode::kAll)}, 64);
  Add("a", Tokens(100, 18));
  Add("b", Tokens(100, 18));
  BeginStep();
  ASSERT_TRUE(Admit("a"));
  EXPECT_THAT(Table("a", 0), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(Table("a", 1), ElementsAre(6, 7, 8, 9, 10));
  EXPECT_FALSE(Admit("b"));
  EXPECT_FALSE(exhausted_);
  EXPECT_THAT(HitBlocks(0), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(HitBlocks(1), ElementsAre(0, 0, 0, 9));
  BeginStep();
  ASSERT_TRUE(Admit("b"));
  EXPECT_THAT(Table("b", 0), ElementsAre(1, 2, 3, 4, 11));
  EXPECT_THAT(Table("b", 1), ElementsAre(0, 0, 0, 9, 12));
}

TEST_F(MambaTest, ModeAllHasSparesBehindTheLookahead) {
  Make(30, {MambaSpec(MambaMode::kAll, 2)}, 64);
  Add("a", Tokens(100, 11));
  ASSERT_TRUE(Admit("a", 6));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 3, 4));
  ASSERT_TRUE(Step("a", 1, 2));
  EXPECT_THAT(Table("a"), ElementsAre(1, 2, 3, 4, 5));
  ASSERT_TRUE(Step("a", 4, 2));
  EXPECT_THAT(Table("a"), ElementsAre(0, 2, 3, 4, 5, 6));
}

TEST_F(MambaTest, Ex18ModeAlignKeepsTheStatesAtTheEndsOfSteps) {
  Make(30, {Full(), MambaSpec(MambaMode::kAlign)}, 64);
  Fake& a = Add("a", Tokens(100, 19));
  ASSERT_TRUE(Admit("a", 8));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 3));
  ASSERT_TRUE(Step("a", 8));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 3, 0, 6));
  ASSERT_TRUE(Step("a", 2));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 0, 0, 6, 8));
  ASSERT_TRUE(Step("a", 1));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 0, 0, 0, 8));
  a.tokens.push_back(500);
  ASSERT_TRUE(Step("a", 1));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 0, 0, 0, 8));
  a.tokens.push_back(501);
  ASSERT_TRUE(Step("a", 1));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 0, 0, 0, 8, 10));
  a.tokens.push_back(502);
  ASSERT_TRUE(Step("a", 1));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 0, 0, 0, 0, 10));
}

TEST_F(MambaTest, ModeAlignMovesItsSparesBehindTheNewState) {
  Make(30, {Full(), MambaSpec(MambaMode::kAlign, 2)}, 64);
  Add("a", Tokens(100, 20));
  Add("b", Tokens(100, 13));
  BeginStep();
  ASSERT_TRUE(Admit("a", 8));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 3, 4, 5));
  ASSERT_TRUE(Step("a", 4));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 3, 4, 5, 7));  // a spare became the state
  ASSERT_TRUE(Step("a", 8));
  EXPECT_THAT(Table("a", 1), ElementsAre(0, 0, 4, 0, 7, 5, 10));
  Free("a");
  BeginStep();
  ASSERT_TRUE(Admit("b"));
  EXPECT_EQ(hit_.num_tokens, 12);
  EXPECT_THAT(HitBlocks(1), ElementsAre(0, 0, 4));
  EXPECT_THAT(Table("b", 0), ElementsAre(1, 2, 6, 11));
  EXPECT_THAT(Table("b", 1), ElementsAre(0, 0, 4, 12, 13, 14));
}

// kv_cache.md DEF-3: a token and three drafts reach a block that the next step, without drafts,
// does not.
TEST_F(MambaTest, ModeAlignMeetsATableThatIsTooLong) {
  for (const bool faithful : {true, false}) {
    Make(30, {Full(), MambaSpec(MambaMode::kAlign, 3)}, 64, kCaching, !kEagle, faithful);
    Fake& a = Add("a", Tokens(100, 14));
    ASSERT_TRUE(Admit("a", 12));
    ASSERT_TRUE(Step("a", 2));
    a.tokens.push_back(500);
    ASSERT_TRUE(Step("a", 4));
    const std::vector<std::uint32_t> table = Table("a", 1);
    EXPECT_EQ(table.size(), 8U);  // the states of 5 blocks, the spares
    Refuse("a", 3, 0);
    EXPECT_EQ(Step("a", 1), !faithful);
    EXPECT_EQ(exhausted_, faithful);
    if (faithful) {
      EXPECT_EQ(kv_->growth_fault().missing_blocks, 0);
      EXPECT_EQ(kv_->growth_fault().wanted_length, 7U);
      EXPECT_EQ(kv_->growth_fault().present_length, 8U);
      continue;
    }
    EXPECT_THAT(Table("a", 1), testing::ElementsAreArray(table));
    const std::span<const std::uint32_t> used = std::span(table).subspan(3, 4);
    EXPECT_THAT(used, testing::Each(testing::Ne(0U)));  // the state after 16 tokens, the spares
  }
}

// GRP-72: under EAGLE the reference engine searches a Mamba group one block past what full
// attention keeps. Blocks that full attention did not find count as computed.
TEST_F(MambaTest, EagleLengthensHitsPastFullAttention) {
  for (const MambaMode mode : {MambaMode::kAll, MambaMode::kAlign}) {
    Make(30, {Full(), MambaSpec(mode)}, 64, kCaching, kEagle, kFaithful);
    Add("a", Tokens(100, 13));
    Add("b", Tokens(100, 13));
    BeginStep();
    ASSERT_TRUE(Admit("a", 12));
    BeginStep();
    ASSERT_TRUE(Admit("b"));
    EXPECT_EQ(hit_.num_tokens, 12);
    EXPECT_THAT(HitBlocks(0), ElementsAre(1, 2));
    EXPECT_EQ(HitBlocks(1).size(), 3U);
    EXPECT_EQ(Table("b", 0).size(), 4U);
    EXPECT_NE(Table("b", 0)[2], Table("a", 0)[2]);  // empty, and yet not computed by b
  }
}

TEST_F(MambaTest, EagleShortensHitsToWhatFullAttentionKeeps) {
  Make(30, {Full(), MambaSpec(MambaMode::kAll)}, 64, kCaching, kEagle, !kFaithful);
  Add("a", Tokens(100, 13));
  Add("b", Tokens(100, 13));
  BeginStep();
  ASSERT_TRUE(Admit("a"));
  BeginStep();
  ASSERT_TRUE(Admit("b"));
  EXPECT_EQ(hit_.num_tokens, 8);
  EXPECT_THAT(HitBlocks(0), ElementsAre(1, 2));
  EXPECT_THAT(HitBlocks(1), ElementsAre(0, 6));
  EXPECT_THAT(Table("b", 0), ElementsAre(1, 2, 9, 10));
  EXPECT_THAT(Table("b", 1), ElementsAre(0, 6, 11, 12));
}

// Against GRP-76: a hit of no token may have blocks, and the request adopts them.
TEST_F(MambaTest, AHitOfNoTokenMayHaveBlocksUnderEagle) {
  for (const bool faithful : {true, false}) {
    Make(40, {Full(), MambaSpec(MambaMode::kAll), Window(1)}, 64, kCaching, kEagle, faithful);
    Add("a", Tokens(100, 13));
    Add("b", Tokens(100, 13));
    BeginStep();
    ASSERT_TRUE(Admit("a"));
    EXPECT_THAT(Table("a", 1), ElementsAre(5, 6, 7, 8));
    EXPECT_THAT(Table("a", 2), ElementsAre(9, 10, 11, 12));
    Evict(6);
    Evict(10);
    BeginStep();
    ASSERT_TRUE(Admit("b"));
    EXPECT_EQ(hit_.num_tokens, 0);
    EXPECT_THAT(HitBlocks(0), IsEmpty());
    EXPECT_THAT(Table("b", 0), ElementsAre(13, 14, 15, 16));
    if (faithful) {
      EXPECT_THAT(Table("b", 1), ElementsAre(5, 17, 18, 19));
      EXPECT_THAT(Table("b", 2), ElementsAre(9, 20, 21, 22));
    } else {
      EXPECT_THAT(Table("b", 1), ElementsAre(17, 18, 19, 20));
      EXPECT_THAT(Table("b", 2), ElementsAre(21, 22, 23, 24));
    }
  }
}

}  // namespace
}  // namespace tally
