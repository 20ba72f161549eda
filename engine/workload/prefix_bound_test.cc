#include "engine/workload/prefix_bound.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tally {
namespace {

WorkloadRequest Prompt(std::vector<PromptSegment> shared, std::int32_t own = 0) {
  WorkloadRequest request;
  request.segments = std::move(shared);
  request.num_shared_segments = static_cast<std::int32_t>(request.segments.size());
  if (own > 0) request.segments.push_back({99, own});
  for (const PromptSegment& segment : request.segments) {
    request.num_prompt_tokens += segment.num_tokens;
  }
  return request;
}

TEST(PrefixBoundTest, LeadingKnownSegmentsCount) {
  PrefixBound bound;
  bound.Add(Prompt({{1, 512}, {2, 512}}, 7));
  EXPECT_EQ(bound.num_reusable_tokens(), 0);
  bound.Add(Prompt({{1, 512}, {3, 512}, {2, 512}}));  // 2 is known, but not behind 1, 3
  EXPECT_EQ(bound.num_reusable_tokens(), 512);
  bound.Add(Prompt({{1, 512}, {3, 100}}));  // a partial block counts with its true length
  EXPECT_EQ(bound.num_reusable_tokens(), 512 + 612);
  EXPECT_EQ(bound.num_prompt_tokens(), 1031 + 1536 + 612);
  EXPECT_EQ(bound.num_distinct(), 3U);
  EXPECT_DOUBLE_EQ(bound.fraction(), 1124.0 / 3179.0);
}

TEST(PrefixBoundTest, OwnSegmentsNever) {
  PrefixBound bound;
  bound.Add(Prompt({}, 40));
  bound.Add(Prompt({}, 40));
  EXPECT_EQ(bound.num_reusable_tokens(), 0);
  EXPECT_EQ(bound.num_distinct(), 0U);
}

TEST(PrefixBoundTest, LiteralTokensCountOneByOne) {
  WorkloadRequest a, b;
  a.tokens = {1, 2, 3, 4};
  a.num_prompt_tokens = 4;
  b.tokens = {1, 2, 4, 4};
  b.num_prompt_tokens = 4;
  PrefixBound bound;
  bound.Add(a);
  bound.Add(b);
  EXPECT_EQ(bound.num_reusable_tokens(), 2);
  b.cache_salt = "s";
  bound.Add(b);
  EXPECT_EQ(bound.num_reusable_tokens(), 2);
  bound.Add(b);
  EXPECT_EQ(bound.num_reusable_tokens(), 6);
}

TEST(PrefixBoundTest, NothingAtAll) { EXPECT_EQ(PrefixBound().fraction(), 0); }

}  // namespace
}  // namespace tally
