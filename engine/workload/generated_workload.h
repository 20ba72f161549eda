// A workload made up from a seed: conversations that look like those of Mooncake's conversation
// trace, for a machine that has no trace.
//
// Sessions start as a Poisson process. Each begins with the system prompt, which all share; each
// turn's prompt is the prompt before it, the answer to that and what the user adds. The load is
// open: a turn comes at its time, whether the engine has answered the one before or not.
//
// The numbers below are fitted to the trace: prompts of 891 to 126,195 tokens with a mean of
// 12,035, answers of 1 to 2,000 with a mean of 343, 1.63 turns a session, about 37 % of prompt
// tokens seen before (fewer in a short run, which has fewer second turns). The trace has 3.4
// requests a second; the default here is what one H100 can serve.
#ifndef TALLY_ENGINE_WORKLOAD_GENERATED_WORKLOAD_H_
#define TALLY_ENGINE_WORKLOAD_GENERATED_WORKLOAD_H_

#include <cstdint>
#include <queue>
#include <vector>

#include "engine/workload/random.h"
#include "engine/workload/workload.h"

namespace tally {

struct GeneratedWorkloadOptions {
  std::uint64_t seed = 0;
  std::int64_t num_requests = 2000;
  double requests_per_second = 1;
};

class GeneratedWorkload : public WorkloadSource {
 public:
  explicit GeneratedWorkload(const GeneratedWorkloadOptions& options);

  std::string_view format() const override { return "generated"; }
  bool has_arrivals() const override { return true; }
  bool has_prefixes() const override { return true; }
  absl::StatusOr<bool> Next(WorkloadRequest& request) override;
  double fraction_read() const override;

 private:
  // A session between two turns.
  struct Session {
    Seconds next_turn = 0;
    std::uint64_t number = 0;
    std::int32_t num_prompt_tokens = 0;  // of the history
    std::vector<PromptSegment> history;
  };
  struct Later {
    bool operator()(const Session& a, const Session& b) const {
      return a.next_turn != b.next_turn ? a.next_turn > b.next_turn : a.number > b.number;
    }
  };

  std::int32_t UserTokens(bool first_turn);
  std::int32_t OutputTokens();
  void StartSession();

  const GeneratedWorkloadOptions options_;
  Random random_;
  std::int64_t num_requests_ = 0;
  std::uint64_t num_sessions_ = 0;
  Seconds next_session_ = 0;
  std::priority_queue<Session, std::vector<Session>, Later> sessions_;
};

}  // namespace tally

#endif  // TALLY_ENGINE_WORKLOAD_GENERATED_WORKLOAD_H_
