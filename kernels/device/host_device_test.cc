#include "kernels/device/host_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

namespace tally {
namespace {

TEST(HostDeviceTest, ArenasAreZeroAndCountAgainstTheLimit) {
  HostDevice device(8192);
  auto arena = device.AllocateArena(4, 1024);
  ASSERT_TRUE(arena.ok()) << arena.status();
  for (std::size_t i = 0; i < 4096; ++i) ASSERT_EQ((*arena)->data()[i], std::byte{0});
  EXPECT_EQ((*arena)->block(3) - (*arena)->block(1), 2048);
  const auto refused = device.AllocateHostArena(5, 1024);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("5 blocks of 1024 bytes"), std::string::npos);
  arena->reset();
  EXPECT_TRUE(device.AllocateHostArena(8, 1024).ok());
  EXPECT_EQ(device.AllocateArena(0, 8).status().code(), absl::StatusCode::kInvalidArgument);
  HostDevice endless;
  EXPECT_EQ(endless.AllocateArena(4'000'000'000U, SIZE_MAX / 2).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(HostDeviceTest, AStreamRunsInOrderAndEventsOrderStreams) {
  HostDevice device;
  auto first = *device.CreateStream();
  auto second = *device.CreateStream();
  auto arena = *device.AllocateArena(3, 4096);
  for (int round = 0; round < 200; ++round) {
    const auto value = static_cast<std::byte>(1 + round % 250);
    ASSERT_TRUE(
        first->Run([&] { std::memset(arena->block(0), static_cast<int>(value), 4096); }).ok());
    const std::vector<BlockCopy> one = {{arena->block(0), arena->block(1), 4096}};
    ASSERT_TRUE(first->Copy(CopyKind::kDeviceToDevice, one).ok());
    ASSERT_TRUE(second->WaitFor(*first->Record()).ok());
    const std::vector<BlockCopy> two = {{arena->block(1), arena->block(2), 4096}};
    ASSERT_TRUE(second->Copy(CopyKind::kDeviceToDevice, two).ok());
    const auto done = *second->Record();
    ASSERT_TRUE(done->Wait().ok());
    ASSERT_TRUE(done->Done());
    ASSERT_EQ(arena->block(2)[0], value);
    ASSERT_EQ(arena->block(2)[4095], value);
  }
}

TEST(HostDeviceTest, AStreamThatEndsRunsWhatItWasGiven) {
  HostDevice device;
  std::atomic<int> runs = 0;
  auto stream = *device.CreateStream();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(stream->Run([&] { ++runs; }).ok());
  stream.reset();
  EXPECT_EQ(runs, 100);
}

}  // namespace
}  // namespace tally
