// The public traces of ../shared/traces, each a case that is skipped where its file isn't there.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/workload/prefix_bound.h"
#include "engine/workload/replayer.h"
#include "engine/workload/test_files.h"
#include "engine/workload/workload_file.h"

namespace tally {
namespace {

struct Published {
  const char* file;
  const char* name;  // of the test case
  std::int64_t num_requests;
  std::int64_t num_prompt_tokens;
  std::size_t num_distinct;  // blocks, in the trace's own size
  double bound;              // hit rate of an infinite cache, to a tenth of a percent
};

// The numbers that the traces' page gives, and sums over the files.
constexpr Published kPublished[] = {
    {"mooncake_conversation.jsonl", "MooncakeConversation", 12'031, 144'793'823, 182'790, 0.374},
    {"mooncake_synthetic.jsonl", "MooncakeSynthetic", 3'993, 61'194'628, 43'924, 0.651},
    {"rtpllm_online.jsonl", "RtpLlm", 8'332, 50'559'726, 35'346, 0.206},
    {"azure2023_code.csv", "AzureCode", 8'819, 18'059'974, 0, 0},
    {"azure2023_conv.csv", "AzureConversation", 19'366, 22'361'870, 0, 0},
    {"vidur_arxiv_lengths.csv", "VidurLengths", 28'257, 73'131'321, 0, 0},
};

std::string CaseName(const testing::TestParamInfo<Published>& info) { return info.param.name; }

class PublishedTracesTest : public testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    path_ = SharedTrace(GetParam().file);
    if (path_.empty()) GTEST_SKIP() << "../shared/traces/" << GetParam().file << " is not there";
    absl::StatusOr<std::unique_ptr<WorkloadFile>> file = WorkloadFile::Open(path_, {});
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    file_ = *std::move(file);
  }

  std::string path_;
  std::unique_ptr<WorkloadFile> file_;
};

TEST_P(PublishedTracesTest, HasTheNumbersOfItsPage) {
  PrefixBound bound;
  std::int64_t num_requests = 0;
  WorkloadRequest request;
  for (;;) {
    const absl::StatusOr<bool> read = file_->Next(request);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    if (!*read) break;
    ++num_requests;
    bound.Add(request);
  }
  EXPECT_EQ(num_requests, GetParam().num_requests);
  EXPECT_EQ(bound.num_prompt_tokens(), GetParam().num_prompt_tokens);
  EXPECT_EQ(bound.num_distinct(), GetParam().num_distinct);
  EXPECT_NEAR(bound.fraction(), GetParam().bound, 0.0005);
}

// A cache that holds everything reaches the bound but for the last token of a prompt, which is
// always computed, and parts of blocks.
TEST_P(PublishedTracesTest, LargeCacheReachesTheBound) {
  ReplaySettings settings;
  settings.num_blocks = 1'000'000;
  settings.max_model_len = 200'000;  // more than the longest request
  settings.linear = LinearParameters{.fixed = 1e-3};
  ReplayOptions options;
  options.limit = 1'500;
  const absl::StatusOr<ReplayReport> report =
      Replay(*ResolveReplayConfig(settings), *file_, options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->accounted());
  EXPECT_EQ(report->num_done, 1'500);
  EXPECT_LE(report->hit_rate(), report->hit_rate_bound);
  EXPECT_NEAR(report->hit_rate(), report->hit_rate_bound, 0.002);
  if (GetParam().bound > 0) {
    EXPECT_GT(report->hit_rate_bound, 0.15);
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, PublishedTracesTest, testing::ValuesIn(kPublished), CaseName);

}  // namespace
}  // namespace tally
