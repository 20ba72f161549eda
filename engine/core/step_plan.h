// What one step of the model is to compute: the answer of Scheduler::Schedule.
#ifndef TALLY_ENGINE_CORE_STEP_PLAN_H_
#define TALLY_ENGINE_CORE_STEP_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/base/types.h"

namespace tally {

class ConnectorMetadata;

// One request of a step.
struct ScheduledRequest {
  enum class Kind : std::uint8_t {
    kRunning,  // ran before: the worker knows its blocks but the new ones
    kNew,      // scheduled for the first time (or the next chunk of a session)
    kResumed,  // scheduled again after a preemption: the worker replaces its block table
  };

  RequestHandle request = kNoRequest;
  std::int32_t num_tokens = 0;              // to compute in this step, drafts included
  std::int32_t num_computed_tokens = 0;     // computed before this step
  std::int32_t num_output_tokens = 0;       // sampled so far, placeholders included
  std::int32_t num_draft_tokens = 0;        // of num_tokens
  std::uint32_t first_draft = 0;            // place of the first draft in StepPlan::draft_tokens
  std::uint32_t new_blocks = kNoNewBlocks;  // its row in StepPlan::first_new_block
  Kind kind = Kind::kRunning;
  bool samples = false;  // its known tokens are computed after this step: the model samples for it

  static constexpr std::uint32_t kNoNewBlocks = 0xFFFFFFFFU;
  bool has_new_blocks() const { return new_blocks != kNoNewBlocks; }
};

// An encoder input to run in a step.
struct ScheduledEncoderInput {
  RequestHandle request = kNoRequest;
  std::int32_t input = 0;  // its place in the request's encoder inputs
};

// Views into the scheduler's memory: they live until its next call. Block tables are read through
// Scheduler::kv(): nothing is copied.
struct StepPlan {
  // In scheduling order (scheduler.md DET-1): surviving running requests, then admitted ones.
  std::span<const ScheduledRequest> requests;
  std::int32_t num_scheduled_tokens = 0;  // sum over the requests
  // One row of num_groups entries for each request with new blocks: the place in its block table of
  // that group from which on blocks are new to the worker. 0 for new and resumed requests, whose
  // whole table is sent.
  std::span<const std::uint32_t> first_new_block;
  std::uint32_t num_groups = 1;
  std::span<const TokenId> draft_tokens;
  // By request in scheduling order, each request's in order.
  std::span<const ScheduledEncoderInput> encoder_inputs;
  // Hashes of encoder outputs that left the cache since the last plan.
  std::span<const std::string> freed_encoder_hashes;
  // Requests that lost their blocks in this call, in order.
  std::span<const RequestHandle> preempted;
  // Requests that ended since the last call, in order; their ids can still be read.
  std::span<const RequestHandle> finished;
  // Blocks to be filled with zeros before the step, allocated since the last plan: those of full
  // attention in a model that has Mamba layers, too (SCH-42).
  std::span<const BlockId> blocks_to_zero;
  // What the KV connector tells the workers; null without one.
  const ConnectorMetadata* connector = nullptr;
  // For each group the leading blocks that all requests with blocks share (SCH-41).
  std::span<const std::int32_t> common_prefix_blocks;

  // Wants a request that has new blocks.
  std::uint32_t FirstNewBlock(const ScheduledRequest& request, std::uint32_t group) const {
    return first_new_block[std::size_t{request.new_blocks} * num_groups + group];
  }
  std::span<const TokenId> Drafts(const ScheduledRequest& request) const {
    return draft_tokens.subspan(request.first_draft,
                                static_cast<std::size_t>(request.num_draft_tokens));
  }
};

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_STEP_PLAN_H_
