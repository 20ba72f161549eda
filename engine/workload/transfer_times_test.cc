#include "engine/workload/transfer_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tally {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

OffloadingMetadata::Transfer Of(const std::string& request, std::uint32_t blocks) {
  OffloadingMetadata::Transfer transfer;
  transfer.request_id = request;
  for (std::uint32_t i = 1; i <= blocks; ++i) transfer.gpu_blocks.push_back(BlockId{i});
  return transfer;
}

// A block takes a second.
TEST(TransferTimesTest, TransfersOfADirectionFollowOneAnother) {
  TransferTimes times(100, 100);
  OffloadingMetadata metadata;
  metadata.load = {Of("a", 2), Of("b", 1)};
  metadata.store = {Of("c", 3)};
  EXPECT_EQ(times.Start(metadata, 10, 15), 0);
  EXPECT_EQ(times.NextEnd(), 12);
  EXPECT_THAT(times.TakeReports(11.9).finished_recving, IsEmpty());
  EXPECT_THAT(times.TakeReports(12).finished_recving, ElementsAre("a"));
  EXPECT_THAT(times.TakeReports(20).finished_recving, ElementsAre("b"));
  EXPECT_EQ(times.loaded_blocks(), 3);
  EXPECT_EQ(times.stored_blocks(), 3);
  // Nobody waits for a store of a request that runs.
  EXPECT_EQ(times.NextEnd(), std::nullopt);
}

TEST(TransferTimesTest, StoresOfAnEndedRequestAreToldWhenTheLastIsOver) {
  TransferTimes times(100, 100);
  OffloadingMetadata metadata;
  metadata.store = {Of("a", 1), Of("b", 1), Of("a", 1)};
  times.Start(metadata, 0, 5);
  times.Finish("a");
  times.Finish("nobody");
  EXPECT_EQ(times.NextEnd(), 8);
  EXPECT_THAT(times.TakeReports(7.5).finished_sending, IsEmpty());
  EXPECT_THAT(times.TakeReports(8).finished_sending, ElementsAre("a"));
  EXPECT_THAT(times.TakeReports(100).finished_sending, IsEmpty());
}

TEST(TransferTimesTest, AStepWaitsForTheStoresThatItFlushes) {
  TransferTimes times(100, 100);
  OffloadingMetadata metadata;
  metadata.store = {Of("a", 4)};
  times.Start(metadata, 0, 5);
  OffloadingMetadata next;
  next.flush = {"a", "unknown"};
  EXPECT_EQ(times.Start(next, 6, 7), 9);
}

}  // namespace
}  // namespace tally
