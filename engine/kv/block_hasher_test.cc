#include "engine/kv/block_hasher.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <string>

namespace tally {
namespace {

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (char c : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    hex += two;
  }
  return hex;
}
std::string Hex(const BlockDigest& digest) {
  return Hex(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

// kv_cache.md HASH-12 and HASH-13: vectors made with upstream's sha256_cbor and PYTHONHASHSEED=0.
constexpr std::string_view kRoot =
    "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e";
constexpr std::string_view kV1 = "c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb";

TEST(Sha256CborTest, RootIsTheDigestOfTheSeedAsText) {
  EXPECT_EQ(Hex(BlockHasher(HashAlgorithm::kSha256Cbor, 4).root()), kRoot);
}

TEST(Sha256CborTest, EncodesShortestHeads) {
  const BlockDigest root = BlockHasher(HashAlgorithm::kSha256Cbor, 4).root();
  const std::vector<std::int64_t> tokens = {0, 23, 24, 255, 256, 65535, 65536, 4294967296};
  const std::vector<ExtraKey> extra = {{"\xc3\xa9", 0, ExtraKey::Kind::kSalt}};
  const std::string bytes = BlockHasher::CborEncoding(root, tokens, extra);
  EXPECT_EQ(Hex(bytes), "835820" + std::string(kRoot) +
                            "880017181818ff19010019ffff1a000100001b00000001000000008162c3a9");
  EXPECT_EQ(Hex(BlockHasher::Sha256(bytes)),
            "da4b943d38ad5cadde0b1859823e95afed83e195b82e4c2146c1dd35e3e46de6");
}

TEST(Sha256CborTest, ChainsBlocks) {
  BlockHasher hasher(HashAlgorithm::kSha256Cbor, 4);
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 300, 70000, 9};
  BlockHashChain chain;
  hasher.Extend({tokens, {}}, {}, chain);
  ASSERT_EQ(chain.digests.size(), 2U);
  EXPECT_EQ(Hex(chain.digests[0]), kV1);
  EXPECT_EQ(Hex(chain.digests[1]),
            "211ce2704ecc6541f3e0095091e108c18a7d14649d7a5a83786e0c80215a1fc0");
}

TEST(Sha256CborTest, ExtraKeysAreLoraThenSaltAndTheSaltOnlyInTheFirstBlock) {
  BlockHasher hasher(HashAlgorithm::kSha256Cbor, 4);
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  BlockHashChain salted;
  hasher.Extend({std::span(tokens).first(4), {}}, {.cache_salt = "salt"}, salted);
  EXPECT_EQ(Hex(salted.digests[0]),
            "fc4ede16a2de1e091ff40df14d03495873c6222d8e61532d7f2682cbfe0401a9");
  BlockHashChain both;
  hasher.Extend({tokens, {}}, {.lora_name = "lorax", .cache_salt = "s1"}, both);
  EXPECT_EQ(Hex(both.digests[0]),
            "12333871f1fa5999e8d8ffea27fa817cf601b335f596531b02552f9fb1a0c878");
  EXPECT_EQ(Hex(both.digests[1]),
            "b5eb304fe921cd8184a04eda1666021aad175d8f4a929ca613befed0f19fc9a1");
}

// V6 and V7: an image "img0" at tokens 2 to 5, "img1" at token 6.
TEST(Sha256CborTest, ItemsEnterTheBlocksThatTheyOverlapWithTheirOffsets) {
  BlockHasher hasher(HashAlgorithm::kSha256Cbor, 4);
  const std::vector<TokenId> tokens = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<MultimodalItem> items = {{"img0", 2, 4}, {"img1", 6, 1}};
  BlockHashChain chain;
  hasher.Extend({tokens, {}}, {.lora_name = "lorax", .items = items, .cache_salt = "s1"}, chain);
  EXPECT_EQ(Hex(chain.digests[0]),
            "754ba0c367291c262fb931d7cadf44c91cde54c9c2622dafd61a3b475834c2f2");
  EXPECT_EQ(Hex(chain.digests[1]),
            "f3afb2374fbad437d3f39169c00d9302177c57546d4f802a5c78bdce8e9d70e4");
}

class BlockHasherTest : public testing::TestWithParam<HashAlgorithm> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, BlockHasherTest,
                         testing::Values(HashAlgorithm::kXxh3, HashAlgorithm::kSha256Cbor));

// However a sequence came to be (as a prompt, as outputs, a token at a time), its blocks have the
// same hashes.
TEST_P(BlockHasherTest, SplitBetweenPromptAndOutputDoesNotMatter) {
  BlockHasher hasher(GetParam(), 4);
  std::vector<TokenId> tokens(22);
  std::iota(tokens.begin(), tokens.end(), 100);
  BlockHashChain whole;
  hasher.Extend({tokens, {}}, {.cache_salt = "s"}, whole);
  ASSERT_EQ(whole.hashes.size(), 5U);
  for (std::size_t split = 0; split <= tokens.size(); ++split) {
    BlockHashChain chain;
    const auto all = std::span(std::as_const(tokens));
    for (std::size_t known = split; known <= tokens.size(); ++known) {
      hasher.Extend({all.first(split), all.subspan(split, known - split)}, {.cache_salt = "s"},
                    chain);
    }
    EXPECT_EQ(chain.hashes, whole.hashes) << "prompt of " << split;
  }
}

TEST_P(BlockHasherTest, EveryInputOfABlockChangesItAndAllAfterIt) {
  BlockHasher hasher(GetParam(), 4);
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const auto chain_of = [&](std::span<const TokenId> of, BlockExtraKeys extra) {
    BlockHashChain chain;
    hasher.Extend({of, {}}, extra, chain);
    return chain.hashes;
  };
  const std::vector<BlockHash> plain = chain_of(tokens, {});
  std::vector<TokenId> other = tokens;
  other[5] = 60;
  const std::vector<BlockHash> changed = chain_of(other, {});
  EXPECT_EQ(changed[0], plain[0]);
  EXPECT_FALSE(changed[1] == plain[1]);
  EXPECT_FALSE(changed[2] == plain[2]);
  for (const BlockExtraKeys& extra :
       {BlockExtraKeys{.lora_name = "a"}, BlockExtraKeys{.cache_salt = "a"},
        BlockExtraKeys{.lora_name = "a", .cache_salt = "a"}}) {
    const std::vector<BlockHash> keyed = chain_of(tokens, extra);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_FALSE(keyed[i] == plain[i]) << i;
  }
}

TEST(Xxh3Test, SeedsKeepDeploymentsApart) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  BlockHashChain first;
  BlockHashChain second;
  BlockHasher(HashAlgorithm::kXxh3, 4, 1).Extend({tokens, {}}, {}, first);
  BlockHasher(HashAlgorithm::kXxh3, 4, 2).Extend({tokens, {}}, {}, second);
  EXPECT_FALSE(first.hashes[0] == second.hashes[0]);
}

// kv_cache.md DEF-11: an adapter named like another request's salt must not share its blocks under
// our own algorithm.
TEST(Xxh3Test, AdapterAndSaltOfTheSameNameDiffer) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  BlockHashChain adapter;
  BlockHashChain salt;
  BlockHasher(HashAlgorithm::kXxh3, 4).Extend({tokens, {}}, {.lora_name = "x"}, adapter);
  BlockHasher(HashAlgorithm::kXxh3, 4).Extend({tokens, {}}, {.cache_salt = "x"}, salt);
  EXPECT_FALSE(adapter.hashes[0] == salt.hashes[0]);
}

}  // namespace
}  // namespace tally
