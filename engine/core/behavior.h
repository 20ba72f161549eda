// Where the releases of the reference engine differ, and where Tally differs from them.
//
// Each difference is one named field, read at one place of the engine and tested in both settings.
// A preset is a full set of them: `vllm_0_20` keeps every decision and number of that release, its
// faults too; `corrected`, the default, puts each fault right. A trace's header says which one it
// was recorded with.
#ifndef TALLY_ENGINE_CORE_BEHAVIOR_H_
#define TALLY_ENGINE_CORE_BEHAVIOR_H_

#include <optional>
#include <string_view>

namespace tally {

struct Behavior {
  // scheduler.md BUG-1, CHG-1 (vllm #37460): a request that is preempted before its first output
  // has its PrefillStats overwritten by the next admission, which counts the request's own blocks
  // as cache hits. False: the record is written only while the request was never preempted.
  bool prefill_stats_overwritten_after_preemption = false;

  // scheduler.md BUG-2, CHG-34: `min_tokens` is tested before the length limits, so a request that
  // reaches max_model_len before min_tokens holds its blocks for ever. False: end of sequence, stop
  // tokens and length limits come first (the sampler masks the former until min_tokens is reached).
  bool min_tokens_hides_length_limits = false;

  // scheduler.md BUG-3, CHG-13: the clamp to max_model_len may schedule a negative number of
  // tokens. False: such a request gets none.
  bool negative_schedules = false;

  // scheduler.md BUG-19: a step computes positions below max_model_len - 1 only, so that no token
  // is sampled past the limit. That cuts known tokens too: a prompt of max_model_len tokens that is
  // prefilled in chunks never gets its last one. False: known tokens are always computed, drafts
  // are cut.
  bool length_clamp_cuts_known_tokens = false;

  // scheduler.md BUG-7, CHG-15: under the priority policy a victim that stood before the request
  // which needs a block, but was not scheduled in this step, shifts the list so that one request is
  // passed over.
  bool unscheduled_victim_skips_a_request = false;

  // scheduler.md BUG-9, CHG-4 (vllm #43736): look-ups count as prefix cache queries at every
  // attempt to admit a request. False: those count that lead to an allocation, as the connector's
  // do. Both counters are of look-ups, the prompt counters of requests: one whose load failed from
  // its first block is looked up again, and counts twice.
  bool queries_counted_per_attempt = false;

  // scheduler.md BUG-24, CHG-15: a request that has to preempt itself ends the running phase of the
  // step also under the priority policy, so more urgent requests behind it are not scheduled.
  bool self_preemption_ends_priority_pass = false;

  // scheduler.md BUG-21: a request that can never run (a prompt that leaves no room for an output
  // below max_model_len, or more blocks than the pool has) is queued all the same and blocks what
  // stands behind it. False: AddRequest refuses it with a status that says why.
  bool queues_impossible_requests = false;

  // kv_cache.md DEF-2, CHG-4: the bound on what a window can hold is applied to the test of each
  // step too, which then passes without room: upstream raises ValueError in the middle of an
  // allocation. False: the bound serves admission only.
  bool window_cap_in_step_test = false;

  // kv_cache.md DEF-1, CHG-3: each group adopts its hits and takes blocks for external tokens
  // before the next group does, and may take that one's hits. False: all groups hold on to their
  // hits first.
  bool adopts_group_by_group = false;

  // kv_cache.md DEF-3: a Mamba group under "align" asks for a negative number of blocks when a step
  // has fewer drafts than the one before, and hides another group's shortage; upstream then
  // asserts. False: it asks for none.
  bool mamba_needs_go_below_zero = false;

  // kv_cache.md GRP-72, GRP-75: with EAGLE every group is searched one block past the present
  // candidate, since it drops its last matched block again. A Mamba group drops none, so its hit
  // may end one block behind full attention's: blocks that full attention never found cached count
  // as computed, and are even registered. False: groups that drop nothing are searched up to the
  // candidate.
  bool eagle_lengthens_mamba_hits = false;

  // scheduler.md BUG-8, CHG-17: only adapters of requests scheduled in this step count towards
  // max_loras, so one more may be admitted beside a running request that is in flight, and the next
  // step asserts. False: those of all running requests count.
  bool lora_limit_counts_scheduled_only = false;

  // scheduler.md BUG-17: a release gives room in the encoder-decoder cache back however often it is
  // made. False: once.
  bool encoder_decoder_cache_inflates = false;

  // scheduler.md BUG-5: a late output that stops a request which was preempted, and then passed
  // over in the waiting phase, leaves it in the queue of those: an ended request is admitted later,
  // or a session is queued twice, and the engine stops with "Invalid request status". False: it
  // leaves its queue, and a session that waits for its next chunk gets no late output.
  bool stopped_requests_stay_skipped = false;

  // scheduler.md BUG-6: a session that stops while it is preempted, with its next chunk waiting, is
  // taken out of every queue and never ends. False: it waits for admission with the chunk.
  bool preempted_session_is_lost = false;

  // scheduler.md BUG-11, CHG-33: a session keeps the max_tokens of its first chunk. False: each
  // chunk brings its own.
  bool session_keeps_max_tokens = false;

  // scheduler.md BUG-12, kv_cache.md DEF-8: a chunk of a session drops the last sampled token, but
  // the hash of a block which that token filled stays, and the block is found under it later.
  // False: the hash goes with the token.
  bool session_keeps_stale_hashes = false;

  // scheduler.md BUG-22: a chunk that is added after the end of its session, while that end is
  // still to come, is lost without a word. False: AddRequest refuses it.
  bool chunks_after_the_end_are_lost = false;

  // scheduler.md BUG-13: after a chunk that a stop token ended, every later output carries that
  // stop cause. False: the output that stops does.
  bool session_keeps_stop_cause = false;

  // connectors.md 1.3.8, 5.2, 9.10: a connector's answer is taken as it is; a negative count, or
  // more than the sequence has, goes into the record or ends in an assertion. False: an answer is
  // cut to what can be loaded.
  bool trusts_connector_matches = false;

  // scheduler.md CHG-8: a load is started beside the steps as soon as its own blocks are free,
  // although prefills that are under way need them; two requests can then take each other's blocks
  // for ever. False: it is started when it fits beside all that these still need.
  bool loads_ignore_running_prefills = false;

  // metrics.md DEF-18: a prompt of one token that was loaded beside the steps has no computed token
  // left to build on, and is looked up again, for ever when the connector still holds it. False:
  // the request goes on with the blocks that it has.
  bool one_token_load_is_repeated = false;

  // connectors.md 2.7, 9.16, 8.6: of several connectors only one may return transfer parameters; a
  // second one stops the engine. False: what both say is given to the client, the first one's word
  // where they differ.
  bool one_connector_may_answer = false;

  // connectors.md 1.9.5, 9.9 (vllm #18490): a client's transfer parameters are not looked at before
  // they are used: an incomplete request for a remote prefill stops the engine or waits for ever.
  // False: such a request is computed here, and AddRequest refuses values of the wrong kind with a
  // status that names the field.
  bool transfer_params_unchecked = false;

  // connectors.md 1.7.1, scheduler.md BUG-20: every report of an ended transfer must find its
  // request, and the first one gives the blocks back, so that a request whose load and whose saving
  // were both under way ends in an assertion. False: the blocks are given back when the last of
  // them ended, and reports about nobody are passed over.
  bool first_transfer_report_frees = false;

  // connectors.md 5.2: blocks that a load could not fill are understood for one KV cache group
  // only; with several upstream raises ValueError. False: Update refuses them with a status.
  bool load_failures_need_one_group = false;

  // connectors.md 9.13 (vllm #49250): of several running requests that share a block which a load
  // could not fill only the first one computes it again; another one that is scheduled further on
  // reads it before it is there. False: each goes back to it.
  bool shared_invalid_blocks_recomputed_by_one = false;

  // connectors.md 5.6, 9.13: under the policy "recompute" blocks that a synchronous load could not
  // fill stay in the prefix cache until they are computed, and a request admitted meanwhile hits
  // them. False: their content is taken away at once.
  bool failed_blocks_stay_cached = false;

  // scheduler.md BUG-4, BUG-14, BUG-15, BUG-18, CHG-28, CHG-29, CHG-33 (vllm #42043, #45138): the
  // output of a step that was under way when its request was preempted, set back or continued with
  // the next chunk is taken as if nothing had happened, or one output too many is dropped. Two
  // tokens for one position, lost tokens and requests that never end come of it. False: the request
  // knows how many of its steps are late. Late outputs of a preempted request are delivered, and it
  // is admitted again after the last of them; those of a request that was set back (a forced reset,
  // a failed load, the end of a session's chunk) are dropped.
  bool late_outputs_count_as_present = false;

  // scheduler.md CHG-20, CHG-21 (vllm #45388): a request whose load is over, or a session that got
  // its next chunk, waits in line although it holds its blocks: behind a request that does not fit
  // it waits for ever. False: whoever holds blocks is admitted first, also while nothing new is.
  bool kv_holders_wait_in_line = false;

  // connectors.md 5.4: a request of whose load nothing arrived is matched again as if it were new;
  // a connector that always fails on it then keeps it waiting for ever. False: it is not matched
  // again and computes what is not cached here.
  bool failed_loads_are_matched_again = false;

  static constexpr Behavior Corrected() { return {}; }
  static constexpr Behavior Vllm0_20() {
    return {.prefill_stats_overwritten_after_preemption = true,
            .min_tokens_hides_length_limits = true,
            .negative_schedules = true,
            .length_clamp_cuts_known_tokens = true,
            .unscheduled_victim_skips_a_request = true,
            .queries_counted_per_attempt = true,
            .self_preemption_ends_priority_pass = true,
            .queues_impossible_requests = true,
            .window_cap_in_step_test = true,
            .adopts_group_by_group = true,
            .mamba_needs_go_below_zero = true,
            .eagle_lengthens_mamba_hits = true,
            .lora_limit_counts_scheduled_only = true,
            .encoder_decoder_cache_inflates = true,
            .stopped_requests_stay_skipped = true,
            .preempted_session_is_lost = true,
            .session_keeps_max_tokens = true,
            .session_keeps_stale_hashes = true,
            .chunks_after_the_end_are_lost = true,
            .session_keeps_stop_cause = true,
            .trusts_connector_matches = true,
            .loads_ignore_running_prefills = true,
            .one_token_load_is_repeated = true,
            .one_connector_may_answer = true,
            .transfer_params_unchecked = true,
            .first_transfer_report_frees = true,
            .load_failures_need_one_group = true,
            .shared_invalid_blocks_recomputed_by_one = true,
            .failed_blocks_stay_cached = true,
            .late_outputs_count_as_present = true,
            .kv_holders_wait_in_line = true,
            .failed_loads_are_matched_again = true};
  }
};

// "corrected" or "vllm_0_20"; nothing for any other name.
constexpr std::optional<Behavior> BehaviorByName(std::string_view name) {
  if (name == "corrected") return Behavior::Corrected();
  if (name == "vllm_0_20") return Behavior::Vllm0_20();
  return std::nullopt;
}

}  // namespace tally

#endif  // TALLY_ENGINE_CORE_BEHAVIOR_H_
