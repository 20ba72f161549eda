// The bytes are those of vLLM 0.20.0's event classes under msgspec 0.20, made by
// msgspec.msgpack.Encoder().encode(KVEventBatch(...)).
#include "engine/events/kv_event_encoding.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

std::string Hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    hex.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return hex;
}

// Bytes first, first + 1, ... : a hash of 32.
std::string Hash(int first) {
  std::string hash;
  for (int i = 0; i < 32; ++i) hash.push_back(static_cast<char>(first + i));
  return hash;
}

KvEvent Stored() {
  KvEvent event;
  event.kind = KvEvent::Kind::kStored;
  event.hashes = {Hash(0), Hash(32)};
  event.tokens = {1, 2, 300, 70000};
  event.block_size = 2;
  event.extra_keys = {{}, {{"salt", std::nullopt}}};
  return event;
}

KvEvent Removed(const std::string& medium, std::uint32_t group) {
  KvEvent event;
  event.kind = KvEvent::Kind::kRemoved;
  event.hashes = {Hash(32)};
  event.medium = medium;
  event.group = group;
  return event;
}

TEST(KvEventEncodingTest, Stored) {
  EXPECT_EQ(
      Hex(EncodeKvEventBatch(1.5, std::vector{Stored()}, 0)),
      "93cb3ff8000000000000919aab426c6f636b53746f72656492cf18191a1b1c1d1e1fcf38393a3b3c3d3e3fc0"
      "940102cd012cce0001117002c0a3475055c092c091a473616c740000");
}

TEST(KvEventEncodingTest, AdapterItemsParentAndGroup) {
  KvEvent event = Stored();
  event.hashes = {Hash(0)};
  event.parent = Hash(32);
  event.tokens = {};
  event.block_size = 16;
  event.lora_id = 7;
  event.lora_name = "lora7";
  event.extra_keys = {{{"lora7", std::nullopt}, {"img", -3}}};
  event.group = 2;
  EXPECT_EQ(
      Hex(EncodeKvEventBatch(0, std::vector{event}, 3)),
      "93cb0000000000000000919aab426c6f636b53746f72656491cf18191a1b1c1d1e1fcf38393a3b3c3d3e3f90"
      "1007a3475055a56c6f7261379192a56c6f72613792a3696d67fd0203");
}

TEST(KvEventEncodingTest, HostMemoryHasNoGroups) {
  KvEvent stored;
  stored.kind = KvEvent::Kind::kStored;
  stored.hashes = {Hash(0)};
  stored.medium = "CPU";
  KvEvent cleared;
  EXPECT_EQ(
      Hex(EncodeKvEventBatch(2, std::vector{stored, Removed("CPU", 0), Removed("GPU", 1), cleared},
                             0)),
      "93cb4000000000000000949aab426c6f636b53746f72656491cf18191a1b1c1d1e1fc09000c0a3435055c0c0c094"
      "ac426c6f636b52656d6f76656491cf38393a3b3c3d3e3fa3435055c094ac426c6f636b52656d6f76656491cf3839"
      "3a3b3c3d3e3fa34750550191b0416c6c426c6f636b73436c656172656400");
}

TEST(KvEventEncodingTest, OnlyNullBlocksAreStored) {
  KvEvent event;
  event.kind = KvEvent::Kind::kStored;
  event.tokens = {1};
  event.block_size = 1;
  EXPECT_EQ(Hex(EncodeKvEventBatch(2, std::vector{event}, 0)),
            "93cb4000000000000000919aab426c6f636b53746f72656490c0910101c0a3475055c0c00000");
}

TEST(KvEventEncodingTest, WholeHashes) {
  KvEvent event = Removed("GPU", 0);
  event.hashes = {Hash(0)};
  EXPECT_EQ(
      Hex(EncodeKvEventBatch(2, std::vector{event}, 0, WireHash::kBytes)),
      "93cb40000000000000009194ac426c6f636b52656d6f76656491c420000102030405060708090a0b0c0d0e0f"
      "101112131415161718191a1b1c1d1e1fa34750550000");
}

}  // namespace
}  // namespace tally
