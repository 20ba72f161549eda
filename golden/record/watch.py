"""`record.py watch`: a trace of what a running vLLM engine lets its scheduler do.

The engine runs in this process with a tiny model of random weights. Its scheduler's methods are
wrapped; each call becomes a command and its result the answer. The clock follows the real one, but
stands still during a command, so that the trace replays.
"""

import os
import pathlib
import random
import time
from collections.abc import Callable
from typing import Any

import answers
import canonical_order
import runtime
import trace_file
from clock import VirtualClock
from engine import REFERENCE
from trace_file import Json, Step, Trace
from vllm_setup import make_model_directory

# Two layers and few tokens: a step takes some milliseconds on one core.
# Heads of 32: the CPU's attention kernel has no smaller ones.
_MODEL = {
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
_MAX_MODEL_LEN = 256
_BLOCK_SIZE = 16
_NUM_BLOCKS = 24


class SchedulerWatch:
    """Wraps the methods of one scheduler and writes down each call.

    Construct it before the engine gets its first request; `read_time` gives the seconds to which
    the clock is set for a command. Only calls from outside are written: one method that calls
    another is one command. Raises ValueError for what the format doesn't have.
    """

    def __init__(
        self, scheduler, name: str, clock: VirtualClock, read_time: Callable[[], float]
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._read_time = read_time
        self._inside = False
        self.trace = Trace(name, REFERENCE, _trace_config(scheduler), [])
        canonical_order.fix_order(scheduler)
        self._wrap("add_request", self._added)
        self._wrap("schedule", self._scheduled)
        self._wrap("update_from_output", self._updated, _sampled_tokens)
        self._wrap("update_draft_token_ids", self._drafted)
        self._wrap("finish_requests", self._finished)
        self._wrap("reset_prefix_cache", self._was_reset)
        self._wrap("set_pause_state", self._paused)

    def _wrap(
        self,
        method_name: str,
        write: Callable[..., None],
        capture: Callable[..., Any] | None = None,
    ) -> None:
        """Lets `write` see each call: its result and its arguments.

        In place of the arguments it gets what `capture` keeps of them before the call, for a method
        that changes them.
        """
        method = getattr(self._scheduler, method_name)

        def watched(*args, **kwargs):
            if self._inside:
                return method(*args, **kwargs)
            self._inside = True
            try:
                self._clock.now = self._read_time()
                kept = capture(*args, **kwargs) if capture is not None else None
                result = method(*args, **kwargs)
                if capture is not None:
                    write(result, kept)
                else:
                    write(result, *args, **kwargs)
                return result
            finally:
                self._inside = False

        setattr(self._scheduler, method_name, watched)

    def _write(self, op: str, answer: Json, **arguments: Any) -> None:
        command = {"op": op, "t": self._clock.now, **arguments}
        self.trace.steps.append(Step(trace_file.plain(command), trace_file.plain(answer)))

    def _added(self, _result, request) -> None:
        self._write("add", {}, **_add_arguments(request))

    def _scheduled(self, output) -> None:
        self._write("schedule", answers.schedule_answer(output, self._scheduler))

    def _updated(self, core_outputs, sampled: Json) -> None:
        answer: Json = {"outputs": []}
        for outputs in core_outputs.values():
            answer["outputs"] += [answers.output_row(output) for output in outputs.outputs]
            if outputs.scheduler_stats is not None:
                answer["stats"] = answers.stats_answer(outputs.scheduler_stats)
        answer["free_blocks"] = answers.free_blocks(self._scheduler)
        self._write("update", answer, sampled=sampled)

    def _drafted(self, _result, drafts) -> None:
        # The engine calls it right after the update, of which the format makes it a part.
        step = self.trace.steps[-1]
        if step.command["op"] != "update":
            raise ValueError("drafts that don't follow an update")
        step.command["drafts"] = {
            name: [int(token) for token in tokens]
            for name, tokens in zip(drafts.req_ids, drafts.draft_token_ids, strict=True)
        }

    def _finished(self, finished, request_ids, status) -> None:
        if status.name != "FINISHED_ABORTED" or request_ids is None:
            raise ValueError(f"requests finished from outside with {status.name}")
        names = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        aborted = sorted(name for name, _ in finished)
        self._write("abort", {"aborted": aborted}, ids=sorted(names))

    def _was_reset(self, done, reset_running_requests=False, reset_connector=False) -> None:
        if reset_connector:
            raise ValueError("a reset of the connector")
        self._write("reset_prefix_cache", {"ok": bool(done)}, running=reset_running_requests)

    def _paused(self, _result, state) -> None:
        self._write("pause", {}, state=state.name.lower())


def _sampled_tokens(scheduled, runner_output) -> Json:
    """The tokens of the step by request, before the scheduler cuts off what follows a stop."""
    if runner_output.kv_connector_output is not None:
        raise ValueError("watching an engine with a KV connector")
    if not scheduled.num_scheduled_tokens:
        return {}
    tokens = runner_output.sampled_token_ids
    return {
        name: [int(token) for token in tokens[index]]
        for name, index in runner_output.req_id_to_index.items()
        if len(tokens[index]) > 0
    }


def _trace_config(scheduler) -> Json:
    """The trace's configuration of a scheduler; raises ValueError for what it can't say."""
    limits, cache = scheduler.scheduler_config, scheduler.cache_config
    groups = scheduler.kv_cache_config.kv_cache_groups
    if len(groups) != 1 or type(groups[0].kv_cache_spec).__name__ != "FullAttentionSpec":
        raise ValueError("watching an engine with other groups than one of full attention")
    if scheduler.connector is not None or scheduler.lora_config is not None:
        raise ValueError("watching an engine with a KV connector or with adapters")
    config: Json = {
        "block_size": scheduler.block_size,
        "num_blocks": scheduler.kv_cache_config.num_blocks,
        "max_num_seqs": scheduler.max_num_running_reqs,
        "max_num_batched_tokens": scheduler.max_num_scheduled_tokens,
        "max_model_len": scheduler.max_model_len,
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "enable_chunked_prefill": bool(limits.enable_chunked_prefill),
        "long_prefill_token_threshold": limits.long_prefill_token_threshold,
        "policy": limits.policy,
        "scheduler_reserve_full_isl": scheduler.scheduler_reserve_full_isl,
        "async_scheduling": bool(limits.async_scheduling),
    }
    if scheduler.num_spec_tokens:
        config["num_speculative_tokens"] = scheduler.num_spec_tokens
        config["use_eagle"] = scheduler.use_eagle
    return config


def _add_arguments(request) -> Json:
    """The `add` that makes an equal request; raises ValueError for what the format can't say."""
    params = request.sampling_params
    if params is None or request.mm_features or request.resumable:
        raise ValueError(f"request {request.request_id} is none of text")
    if request.structured_output_request is not None:
        raise ValueError(f"request {request.request_id} has structured output")
    arguments: Json = {
        "id": request.request_id,
        "prompt": list(request.prompt_token_ids),
        "max_tokens": params.max_tokens,
        "priority": request.priority,
        "arrival": request.arrival_time,
    }
    if params.min_tokens:
        arguments["min_tokens"] = params.min_tokens
    if params.eos_token_id is not None:
        arguments["eos"] = params.eos_token_id
    if params.ignore_eos:
        arguments["ignore_eos"] = True
    if params.stop_token_ids:
        arguments["stop_token_ids"] = list(params.stop_token_ids)
    if request.cache_salt:
        arguments["cache_salt"] = request.cache_salt
    if request.skip_reading_prefix_cache:
        arguments["skip_reading_prefix_cache"] = True
    return arguments


def _start_engine():
    """An LLM over random weights on the CPU, its engine in this process.

    On the CPU vLLM 0.20.0 turns asynchronous scheduling off, and its sampler fails with drafts.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    runtime.replace_accelerator()
    from vllm import LLM

    return LLM(
        model=make_model_directory(_MODEL),
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="float32",
        enforce_eager=True,
        max_model_len=_MAX_MODEL_LEN,
        block_size=_BLOCK_SIZE,
        num_gpu_blocks_override=_NUM_BLOCKS,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        disable_log_stats=False,
    )


def _serve(engine, num_requests: int, rng: random.Random) -> None:
    """Random requests with shared prefixes, a few of them aborted, until all have ended."""
    from vllm import SamplingParams

    shared = [rng.randrange(3, 256) for _ in range(3 * _BLOCK_SIZE)]
    added = 0
    while added < num_requests or engine.has_unfinished_requests():
        for _ in range(rng.randint(0, 3)):
            if added == num_requests:
                break
            length = rng.randint(1, _MAX_MODEL_LEN // 2)
            prefix = shared[: rng.randint(0, len(shared))] if rng.random() < 0.6 else []
            tokens = prefix + [rng.randrange(3, 256) for _ in range(length)]
            engine.add_request(
                f"r{added}",
                {"prompt_token_ids": tokens[: _MAX_MODEL_LEN // 2]},
                SamplingParams(
                    max_tokens=rng.randint(1, 60),
                    ignore_eos=rng.random() < 0.5,
                    detokenize=False,
                ),
            )
            added += 1
        if rng.random() < 0.05 and added:
            engine.abort_request([f"r{rng.randrange(added)}"])
        engine.step()


def run(output: pathlib.Path, num_requests: int, seed: int) -> int:
    """Serves random requests and writes the trace of the scheduler to `output`."""
    engine = _start_engine().llm_engine
    clock = VirtualClock()
    start = time.perf_counter()
    watch = SchedulerWatch(
        engine.engine_core.engine_core.scheduler,
        f"watched/{seed}",
        clock,
        lambda: round(time.perf_counter() - start, 6),
    )
    clock.install()
    _serve(engine, num_requests, random.Random(f"watch/{seed}"))
    trace_file.write_traces(output, [watch.trace])
    print(f"{output}: {len(watch.trace.steps)} steps of {num_requests} requests")
    return 0
