#include "engine/workload/token_expansion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace tally {
namespace {

// The streams are part of what a seed means: a report is only worth comparing while they stay.
TEST(TokenExpansionTest, StreamsAreTheSameOnEveryMachine) {
  EXPECT_EQ(StreamSeed(StreamKind::kSharedBlock, 7, 0), 12711365610009353329ULL);
  std::vector<TokenId> tokens;
  for (std::uint64_t i = 0; i < 4; ++i) tokens.push_back(StreamToken(1, i));
  EXPECT_EQ(tokens, (std::vector<TokenId>{74260, 97751, 127271, 58243}));
}

TEST(TokenExpansionTest, TokensAreValidAndNeverTheEndOfSequence) {
  std::set<TokenId> seen;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    const TokenId token = StreamToken(i / 1000, i);
    ASSERT_GT(token, kEndOfSequence);
    ASSERT_LT(token, static_cast<TokenId>(kVocabulary));
    seen.insert(token);
  }
  // A million draws of 131,071 tokens leave out about e^-7.6 of them.
  EXPECT_GT(seen.size(), 130'000U);
}

TEST(TokenExpansionTest, SeedsOfDifferentKindsAndWorkloadsDiffer) {
  std::set<std::uint64_t> seeds;
  int count = 0;
  for (const StreamKind kind : {StreamKind::kSharedBlock, StreamKind::kOwnPrompt,
                                StreamKind::kOutput, StreamKind::kSystemPrompt}) {
    for (std::uint64_t id = 0; id < 1000; ++id) {
      for (std::uint64_t workload = 0; workload < 3; ++workload) {
        seeds.insert(StreamSeed(kind, id, workload));
        ++count;
      }
    }
  }
  EXPECT_EQ(seeds.size(), static_cast<std::size_t>(count));
}

WorkloadRequest RequestOf(std::vector<PromptSegment> segments) {
  WorkloadRequest request;
  request.segments = std::move(segments);
  for (const PromptSegment& segment : request.segments) {
    request.num_prompt_tokens += segment.num_tokens;
  }
  return request;
}

TEST(TokenExpansionTest, EqualLeadingSegmentsAreAnEqualPrefix) {
  std::vector<TokenId> a, b;
  ExpandPrompt(RequestOf({{1, 512}, {2, 512}, {3, 100}}), a);
  ExpandPrompt(RequestOf({{1, 512}, {2, 512}, {4, 200}}), b);
  ASSERT_EQ(a.size(), 1124U);
  ASSERT_EQ(b.size(), 1224U);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 1024, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 1024, a.begin() + 1040, b.begin() + 1024));
}

TEST(TokenExpansionTest, PartialBlockIsTheBeginningOfTheWholeOne) {
  std::vector<TokenId> whole, part;
  ExpandPrompt(RequestOf({{9, 512}}), whole);
  ExpandPrompt(RequestOf({{9, 100}}), part);
  ASSERT_EQ(part.size(), 100U);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
}

TEST(TokenExpansionTest, LiteralTokensStayAsTheyAre) {
  WorkloadRequest request;
  request.tokens = {5, 6, 7};
  request.num_prompt_tokens = 3;
  std::vector<TokenId> tokens{1, 2, 3, 4};
  ExpandPrompt(request, tokens);
  EXPECT_EQ(tokens, request.tokens);
}

}  // namespace
}  // namespace tally
