#include "engine/workload/generated_workload.h"

#include <algorithm>
#include <utility>

#include "engine/workload/token_expansion.h"

namespace tally {
namespace {

constexpr std::int32_t kSystemPromptTokens = 880;  // the shortest prompt of the trace has 891
constexpr std::int32_t kMostPromptTokens = 126'195;
constexpr std::int32_t kMostOutputTokens = 2'000;
constexpr double kChanceOfAnotherTurn = 0.387;
constexpr double kTurnsPerSession = 1 / (1 - kChanceOfAnotherTurn);
// From one turn's arrival to the next one's.
constexpr double kMedianPause = 123;
constexpr double kPauseSigma = 0.95;

std::int32_t Clamp(double value, std::int32_t least, std::int32_t most) {
  return static_cast<std::int32_t>(
      std::clamp(value, static_cast<double>(least), static_cast<double>(most)));
}

}  // namespace

GeneratedWorkload::GeneratedWorkload(const GeneratedWorkloadOptions& options)
    : options_(options), random_(options.seed) {}

// Pasted documents give the text a long tail.
std::int32_t GeneratedWorkload::UserTokens(bool first_turn) {
  const double tokens = first_turn ? random_.LogNormal(4'400, 1.28) : random_.LogNormal(420, 1.95);
  return Clamp(tokens, 11, kMostPromptTokens - kSystemPromptTokens);
}

// One answer in five is a word or a sentence, one in fifty a long text, the others a few
// paragraphs.
std::int32_t GeneratedWorkload::OutputTokens() {
  const double kind = random_.Uniform();
  double tokens = 405 + 150 * random_.Normal();
  if (kind < 0.2) tokens = random_.LogNormal(40, 1.0);
  if (kind > 0.98) tokens = random_.LogNormal(1'100, 0.35);
  return Clamp(tokens, 1, kMostOutputTokens);
}

void GeneratedWorkload::StartSession() {
  Session session;
  session.next_turn = next_session_;
  session.number = num_sessions_++;
  session.history.push_back(
      {StreamSeed(StreamKind::kSystemPrompt, 0, options_.seed), kSystemPromptTokens});
  session.num_prompt_tokens = kSystemPromptTokens;
  sessions_.push(std::move(session));
  next_session_ += random_.Exponential(kTurnsPerSession / options_.requests_per_second);
}

absl::StatusOr<bool> GeneratedWorkload::Next(WorkloadRequest& request) {
  if (num_requests_ == options_.num_requests) return false;
  while (sessions_.empty() || next_session_ <= sessions_.top().next_turn) StartSession();
  Session session = sessions_.top();
  sessions_.pop();
  const auto number = static_cast<std::uint64_t>(num_requests_++);

  const bool first_turn = session.history.size() == 1;
  const std::int32_t user =
      std::min(UserTokens(first_turn), kMostPromptTokens - session.num_prompt_tokens);
  session.history.push_back({StreamSeed(StreamKind::kOwnPrompt, number, options_.seed), user});
  session.num_prompt_tokens += user;

  request = WorkloadRequest();
  request.row = num_requests_;
  request.arrival = session.next_turn;
  request.num_prompt_tokens = session.num_prompt_tokens;
  request.num_output_tokens = OutputTokens();
  request.segments = session.history;
  request.num_shared_segments = static_cast<std::int32_t>(session.history.size());
  request.output_seed = StreamSeed(StreamKind::kOutput, number, options_.seed);

  session.history.push_back({request.output_seed, request.num_output_tokens});
  session.num_prompt_tokens += request.num_output_tokens;
  session.next_turn += random_.LogNormal(kMedianPause, kPauseSigma);
  const bool goes_on =
      random_.Uniform() < kChanceOfAnotherTurn && session.num_prompt_tokens < kMostPromptTokens;
  if (goes_on) sessions_.push(std::move(session));
  return true;
}

double GeneratedWorkload::fraction_read() const {
  if (options_.num_requests == 0) return 1;
  return static_cast<double>(num_requests_) / static_cast<double>(options_.num_requests);
}

}  // namespace tally
