#include "kernels/device/virtual_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tally {
namespace {

using SourceOrder = VirtualDevice::SourceOrder;
constexpr std::size_t kBytes = 64;
constexpr int kSeeds = 2000;

// One round of a store: a computation writes a block, a second stream copies it to the host, then
// the computation writes the next content over it. Answers whether the host got the first content.
struct StoreCase {
  SourceOrder order = SourceOrder::kStream;
  bool store_waits = true;    // for the computation
  bool compute_waits = true;  // for the store, before it overwrites
};

bool StoredWell(const StoreCase& test, std::uint64_t seed) {
  VirtualDevice device({.seed = seed, .source_order = test.order});
  auto compute = *device.CreateStream();
  auto store = *device.CreateStream();
  auto arena = *device.AllocateArena(2, kBytes);
  const auto write = [&](int value) {
    EXPECT_TRUE(
        compute->Run([&arena, value] { std::memset(arena->block(0), value, kBytes); }).ok());
  };
  write(1);
  const auto computed = *compute->Record();
  if (test.store_waits) {
    // Copies whose source is read at any time may only be submitted when the source is there.
    if (test.order == SourceOrder::kAny) {
      EXPECT_TRUE(computed->Wait().ok());
    } else {
      EXPECT_TRUE(store->WaitFor(computed).ok());
    }
  }
  const std::vector<BlockCopy> copy = {{arena->block(0), arena->block(1), kBytes}};
  EXPECT_TRUE(store->Copy(CopyKind::kDeviceToHost, copy).ok());
  if (test.compute_waits) {
    EXPECT_TRUE(compute->WaitFor(*store->Record()).ok());
  }
  write(2);
  EXPECT_TRUE(compute->Synchronize().ok());
  EXPECT_TRUE(store->Synchronize().ok());
  for (std::size_t i = 0; i < kBytes; ++i) {
    if (arena->block(1)[i] != std::byte{1}) return false;
  }
  return true;
}

int Corrupt(const StoreCase& test) {
  int corrupt = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) corrupt += StoredWell(test, seed) ? 0 : 1;
  return corrupt;
}

TEST(VirtualDeviceTest, AMissingEdgeIsFoundInManySeedsAndNoneWithBoth) {
  for (const SourceOrder order : {SourceOrder::kStream, SourceOrder::kAny}) {
    EXPECT_GT(Corrupt({order, false, true}), kSeeds / 50);
    EXPECT_GT(Corrupt({order, true, false}), kSeeds / 50);
    EXPECT_EQ(Corrupt({order, true, true}), 0);
  }
}

TEST(VirtualDeviceTest, AnEventDoesNotHoldBackReadsOfAnyOrder) {
  // The copy waits for the computation in its stream; with source order kAny that is not enough.
  const auto corrupt = [](SourceOrder order) {
    int count = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      VirtualDevice device({.seed = seed, .source_order = order});
      auto compute = *device.CreateStream();
      auto store = *device.CreateStream();
      auto arena = *device.AllocateArena(2, kBytes);
      EXPECT_TRUE(compute->Run([&] { std::memset(arena->block(0), 1, kBytes); }).ok());
      EXPECT_TRUE(store->WaitFor(*compute->Record()).ok());
      const std::vector<BlockCopy> copy = {{arena->block(0), arena->block(1), kBytes}};
      EXPECT_TRUE(store->Copy(CopyKind::kDeviceToHost, copy).ok());
      EXPECT_TRUE(store->Synchronize().ok());
      count += std::memcmp(arena->block(0), arena->block(1), kBytes) == 0 ? 0 : 1;
    }
    return count;
  };
  EXPECT_EQ(corrupt(SourceOrder::kStream), 0);
  EXPECT_GT(corrupt(SourceOrder::kAny), kSeeds / 50);
}

TEST(VirtualDeviceTest, OneStreamKeepsItsOrder) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    VirtualDevice device({.seed = seed, .source_order = SourceOrder::kStream});
    auto stream = *device.CreateStream();
    auto arena = *device.AllocateArena(3, kBytes);
    for (int value = 1; value < 4; ++value) {
      ASSERT_TRUE(
          stream->Run([&arena, value] { std::memset(arena->block(0), value, kBytes); }).ok());
      const std::vector<BlockCopy> copies = {{arena->block(0), arena->block(1), kBytes},
                                             {arena->block(0) + 8, arena->block(2), 24}};
      ASSERT_TRUE(stream->Copy(CopyKind::kDeviceToDevice, copies).ok());
    }
    ASSERT_TRUE(stream->Synchronize().ok());
    for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(arena->block(1)[i], std::byte{3});
    for (std::size_t i = 0; i < 24; ++i) ASSERT_EQ(arena->block(2)[i], std::byte{3});
  }
}

TEST(VirtualDeviceTest, EqualSeedsRunEqually) {
  const auto run = [](std::uint64_t seed) {
    VirtualDevice device({.seed = seed});
    auto first = *device.CreateStream();
    auto second = *device.CreateStream();
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE((i % 2 == 0 ? first : second)->Run([&order, i] { order.push_back(i); }).ok());
    }
    EXPECT_TRUE(first->Synchronize().ok());
    EXPECT_TRUE(second->Synchronize().ok());
    return order;
  };
  EXPECT_EQ(run(7), run(7));
  int different = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) different += run(seed) != run(100) ? 1 : 0;
  EXPECT_GT(different, 10);
}

TEST(VirtualDeviceTest, AFailedCopyIsToldByTheNextEventOnly) {
  VirtualDevice device({.seed = 3, .failed_copies = 1});
  auto stream = *device.CreateStream();
  auto arena = *device.AllocateArena(2, kBytes);
  const std::vector<BlockCopy> copy = {{arena->block(0), arena->block(1), kBytes}};
  ASSERT_TRUE(stream->Copy(CopyKind::kDeviceToDevice, copy).ok());
  const auto failed = *stream->Record();
  device.SetFaults(0, 0, 0);
  ASSERT_TRUE(stream->Copy(CopyKind::kDeviceToDevice, copy).ok());
  const auto fine = *stream->Record();
  EXPECT_EQ(failed->Wait().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(fine->Wait().ok());
  EXPECT_EQ(device.num_faults(), 1U);
  device.SetFaults(0, 1, 0);
  EXPECT_EQ(stream->Copy(CopyKind::kDeviceToDevice, copy).code(), absl::StatusCode::kInternal);
}

TEST(VirtualDeviceTest, PendingCopiesAreSeen) {
  VirtualDevice device({.seed = 1, .delayed_copies = 1, .delay = 1000});
  auto stream = *device.CreateStream();
  auto arena = *device.AllocateArena(3, kBytes);
  device.SetFaults(0, 0, 1);
  const std::vector<BlockCopy> copy = {{arena->block(0), arena->block(1), kBytes}};
  ASSERT_TRUE(stream->Copy(CopyKind::kDeviceToDevice, copy).ok());
  EXPECT_TRUE(device.IsBeingWritten(arena->block(1), kBytes));
  EXPECT_FALSE(device.IsBeingWritten(arena->block(0), kBytes));
  EXPECT_FALSE(device.IsBeingRead(arena->block(2), kBytes));
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_FALSE(device.IsBeingWritten(arena->block(1), kBytes));
}

}  // namespace
}  // namespace tally
