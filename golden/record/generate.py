"""`record.py generate`: random traces of a family, answered by the real scheduler."""

import dataclasses
import pathlib
import random

import families
import trace_file
from clock import VirtualClock
from engine import REFERENCE, Engine
from prompts import PromptSource
from trace_file import Json, Step, Trace
from vllm_setup import make_model_directory
from workload import Scenario, Workload

# Between two commands pass so many 64ths of a second: exact in binary, and never equal.
_TICKS = (1, 2, 3, 5, 8, 13)

# A trace ends when so many steps in a row scheduled nothing and nothing can change that.
_IDLE_STEPS = 12

# Steps after the last request is gone: its id is still reported as finished.
_STEPS_AFTER_THE_LAST = 2


class _ReferenceFailed(Exception):
    """The real engine answered with an error; the trace ends there."""


@dataclasses.dataclass
class _StepInFlight:
    """A schedule without its update."""

    # Scheduled requests whose prefill is complete after the step, in scheduling order.
    ready: list[str]
    drafts: dict[str, list[int]]


class TraceGenerator:
    """Plays clients, model and workers at random; one instance makes one trace."""

    def __init__(self, name: str, scenario: Scenario, rng: random.Random, engine: Engine) -> None:
        self._config = scenario.config
        self._workload: Workload = scenario.workload
        self._rng = rng
        self._engine = engine
        self._scheduler = engine.scheduler
        self.trace = Trace(name, REFERENCE, trace_file.plain(scenario.config), [])
        self._time = 0.0
        self._num_added = 0
        self._live: list[str] = []
        self._in_flight: list[_StepInFlight] = []
        self._num_steps = 0
        # Chunks that a session still gets.
        self._sessions: dict[str, int] = {}
        # The step at which a request's grammar is there.
        self._grammars_due: dict[str, int] = {}
        self._structured: set[str] = set()
        self._pooling: set[str] = set()
        self._pause_ends: int | None = None
        self._prompts = PromptSource(
            rng,
            self._workload.vocabulary or rng.choice([5, 40, 1000]),
            self._longest_prompt(),
            self._config["block_size"],
            self._workload.shared_prompts,
        )

    def run(self) -> None:
        """Fills `trace`: to the end of the workload, or to the reference's first error."""
        try:
            self._run_steps()
            while self._in_flight:
                self._update()
            self._do("state")
            self._do("metrics")
        except _ReferenceFailed:
            pass

    def _run_steps(self) -> None:
        idle = 0
        after_the_last = 0
        while self._num_steps < self._workload.max_steps:
            self._add_requests()
            self._continue_sessions()
            self._make_grammars()
            self._abort_some()
            self._reset_sometimes()
            self._pause_sometimes()
            scheduled = self._schedule()
            while len(self._in_flight) >= self._workload.depth:
                self._update()
            if self._chance(self._workload.state_rate):
                self._do("state")
            todo = self._requests_left or self._sessions or self._grammars_due
            changing = scheduled or todo or self._pause_ends is not None
            idle = 0 if changing else idle + 1
            if not todo and not self._scheduler.requests:
                after_the_last += 1
            if idle > _IDLE_STEPS or after_the_last > _STEPS_AFTER_THE_LAST:
                return

    # Commands.

    def _do(self, op: str, **arguments) -> Json:
        self._time += self._rng.choice(_TICKS) / 64
        command = {"op": op, "t": self._time, **arguments}
        answer = trace_file.plain(self._engine.handle(trace_file.plain(command)))
        self.trace.steps.append(Step(command, answer))
        if "error" in answer:
            raise _ReferenceFailed
        return answer

    def _schedule(self) -> bool:
        """Schedules a step; says whether it has any tokens."""
        answer = self._do("schedule")
        self._num_steps += 1
        requests = self._scheduler.requests
        ready = [name for name, _ in answer["tokens"] if not requests[name].is_prefill_chunk]
        self._in_flight.append(_StepInFlight(ready, dict(answer.get("spec", []))))
        return bool(answer["tokens"])

    def _update(self) -> None:
        step = self._in_flight.pop(0)
        arguments: Json = {
            "sampled": {
                name: self._sample(step.drafts.get(name, []))
                for name in step.ready
                if name not in self._pooling
            }
        }
        pooled = [name for name in step.ready if name in self._pooling]
        if pooled:
            arguments["pooled"] = pooled
        rejecting = self._rejecting_grammars(step)
        if rejecting:
            arguments["grammar_rejects"] = rejecting
        if self._drafting() and arguments["sampled"]:
            if not self._chance(self._workload.draft_gaps):
                arguments["drafts"] = {name: self._drafts() for name in arguments["sampled"]}
        answer = self._do("update", **arguments)
        for row in answer["outputs"]:
            name = row["id"]
            if "finish" in row and name in self._live and name not in self._scheduler.requests:
                self._live.remove(name)
        if self._scheduler.running and self._chance(0.3):
            request = self._rng.choice(self._scheduler.running)
            self._prompts.remember(list(request.all_token_ids))

    def _drafting(self) -> bool:
        # The asynchronous scheduler puts placeholders itself.
        return self._workload.drafts > 0 and not self._config.get("async_scheduling")

    def _sample(self, drafts: list[int]) -> list[int]:
        """Some of the drafts and one token more."""
        accepted = drafts[: self._rng.randint(0, len(drafts))]
        if accepted and accepted[0] < 0:  # placeholders: the drafter's tokens aren't in the trace
            accepted = self._prompts.tokens(len(accepted))
        if self._chance(self._workload.eos_rate):
            return [*accepted, PromptSource.END_OF_SEQUENCE]
        return [*accepted, self._prompts.token()]

    def _drafts(self) -> list[int]:
        most = self._workload.drafts
        return self._prompts.tokens(self._rng.choice([most, most, self._rng.randint(0, most)]))

    def _rejecting_grammars(self, step: _StepInFlight) -> list[str]:
        if self._workload.grammar is None:
            return []
        rate = self._workload.grammar.reject_rate
        return [name for name in step.ready if name in self._structured and self._chance(rate)]

    # Arrivals.

    @property
    def _requests_left(self) -> int:
        return self._workload.requests - self._num_added

    def _add_requests(self) -> None:
        if self._pause_ends is not None and not self._workload.arrivals_in_pause:
            return
        if self._workload.burst and self._num_added == 0:
            count = 6
        elif self._chance(0.7):
            count = self._rng.randint(0, self._workload.arrivals)
        else:
            count = 0
        for _ in range(min(count, self._requests_left)):
            self._add()

    def _add(self) -> None:
        rng, workload = self._rng, self._workload
        name = f"r{self._num_added}"
        self._num_added += 1
        prompt = self._prompts.prompt()
        command: Json = {"id": name, "prompt": prompt}
        if self._chance(workload.pooling):
            command["pooling"] = True
            self._pooling.add(name)
        else:
            self._choose_sampling(command)
        if workload.salts and self._chance(0.3):
            command["cache_salt"] = rng.choice(["s1", "s2"])
        if workload.priorities:
            command["priority"] = rng.choice(workload.priorities)
        if self._chance(0.2):
            command["arrival"] = rng.choice([0.0, self._time])
        if workload.loras and self._chance(0.8):
            command["lora"] = rng.randint(1, workload.loras)
        if workload.encoder is not None and self._chance(workload.encoder.share):
            if self._config.get("encoder_decoder"):
                command["encoder_inputs"] = [self._encoder_decoder_item()]
            else:
                self._put_items(command)
        self._live.append(name)
        self._do("add", **command)

    def _choose_sampling(self, command: Json) -> None:
        rng, workload = self._rng, self._workload
        name = command["id"]
        command["max_tokens"] = rng.randint(1, workload.max_output)
        command["eos"] = PromptSource.END_OF_SEQUENCE
        if workload.stops and self._chance(0.4):
            command["stop_token_ids"] = [self._prompts.token()]
        if workload.stops and self._chance(0.3):
            command["min_tokens"] = rng.randint(0, command["max_tokens"])
        if workload.stops and self._chance(0.2):
            command["ignore_eos"] = True
        if workload.skip_reading and self._chance(0.2):
            command["skip_reading_prefix_cache"] = True
        if workload.repetition and self._chance(0.8):
            command["repetition"] = dict(rng.choice(workload.repetition))
        grammar = workload.grammar
        if grammar is not None and self._chance(grammar.share):
            command["grammar"] = True
            self._structured.add(name)
            if not self._chance(grammar.never):
                self._grammars_due[name] = self._num_steps + rng.choice(grammar.delays)
        if self._chance(workload.sessions):
            command["resumable"] = True
            self._sessions[name] = rng.randint(1, 3)

    def _longest_prompt(self) -> int:
        config = self._config
        block_size = config["block_size"]
        if self._workload.max_prompt is not None:
            return self._workload.max_prompt
        longest = config["max_model_len"] // 2 - 2
        if config.get("enable_chunked_prefill") is False:
            longest = min(longest, config["max_num_batched_tokens"])
        return max(min(block_size, longest) + 1, longest)

    def _encoder_decoder_item(self) -> Json:
        encoder = self._workload.encoder
        length = min(self._rng.choice(encoder.lengths), self._config["encoder_budget"])
        return {"offset": 0, "length": length, "hash": self._image(length, 0)}

    def _put_items(self, command: Json) -> None:
        """Puts placeholders of items in the prompt, in ascending order and not overlapping."""
        rng, encoder, prompt = self._rng, self._workload.encoder, command["prompt"]
        longest = min(self._config["encoder_budget"], self._config["encoder_cache_size"])
        items: list[Json] = []
        end = 0
        while len(items) < encoder.max_items:
            length = min(rng.choice(encoder.lengths), longest)
            offset = end + rng.randint(0, 6)
            if encoder.edge:
                # Up to the next edge that this item can start or end at.
                ending = rng.random() < 0.5
                edge = end + (length if ending else 0)
                edge = -(-edge // encoder.edge) * encoder.edge
                offset = edge - (length if ending else 0)
            # The prompt's last token is text, as with any chat template.
            length = min(length, len(prompt) - 1 - offset)
            if length < 1:
                break
            items.append(
                {"offset": offset, "length": length, "hash": self._image(length, len(items))}
            )
            end = offset + length
            # Placeholders are equal tokens: only the items' hashes tell two prompts apart.
            prompt[offset:end] = [PromptSource.FIRST_TOKEN] * length
        if items:
            command["encoder_inputs"] = items

    def _image(self, length: int, index: int) -> str:
        """The hash of a shared image or of a new one; the same hash has always the same length."""
        shared = self._rng.randrange(self._workload.encoder.shared_images)
        own = 100 + self._num_added * 10 + index
        return f"image{self._rng.choice([shared, own])}-{length}"

    def _continue_sessions(self) -> None:
        for name in list(self._sessions):
            if self._chance(0.8):
                continue
            request = self._scheduler.requests.get(name)
            if request is None:
                del self._sessions[name]
                continue
            self._sessions[name] -= 1
            too_long = request.num_tokens > self._config["max_model_len"] // 2
            more = self._sessions[name] >= 0 and not too_long
            if not more:
                del self._sessions[name]
            self._do(
                "add",
                id=name,
                prompt=self._prompts.tokens(self._rng.randint(1, 6)) if more else [],
                max_tokens=self._rng.randint(1, 6) if more else 1,
                eos=PromptSource.END_OF_SEQUENCE,
                resumable=more,
                **({"grammar": True} if name in self._structured else {}),
            )

    # What else happens between steps.

    def _make_grammars(self) -> None:
        ready = [name for name, due in self._grammars_due.items() if due <= self._num_steps]
        for name in ready:
            del self._grammars_due[name]
        if ready:
            self._do("grammar_ready", ids=ready)

    def _abort_some(self) -> None:
        self._abort_forgotten()
        if not self._live or not self._chance(self._workload.abort_rate):
            return
        candidates = self._live
        if self._workload.abort_count > 2:
            waiting = [request.request_id for request in self._scheduler.waiting]
            candidates = [name for name in self._live if name in waiting] or self._live
        count = self._rng.randint(1, min(self._workload.abort_count, len(candidates)))
        self._abort(self._rng.sample(candidates, count))

    def _abort_forgotten(self) -> None:
        """Once all else is done, what waits for a grammar that never comes."""
        others = self._requests_left or self._grammars_due or self._scheduler.running
        waiting = [request.request_id for request in self._scheduler.skipped_waiting]
        forgotten = [name for name in waiting if name in self._structured]
        if forgotten and not others and self._pause_ends is None:
            self._abort(forgotten)

    def _abort(self, names: list[str]) -> None:
        for name in names:
            if name in self._live:
                self._live.remove(name)
            # A grammar that is there too late finds its request gone.
            if self._chance(0.5):
                self._grammars_due.pop(name, None)
        self._do("abort", ids=sorted(names))

    def _reset_sometimes(self) -> None:
        if self._chance(self._workload.reset_rate):
            self._do("reset_prefix_cache", running=self._chance(self._workload.reset_running))

    def _pause_sometimes(self) -> None:
        if self._pause_ends is None:
            if self._chance(self._workload.pause_rate):
                self._pause_ends = self._num_steps + self._rng.randint(
                    1, self._workload.pause_steps
                )
                self._do("pause", state=self._rng.choice(["paused_new", "paused_all"]))
        elif self._num_steps >= self._pause_ends:
            self._pause_ends = None
            self._do("pause", state="unpaused")
        elif self._chance(0.2):  # from one pause to the other
            self._do("pause", state=self._rng.choice(["paused_new", "paused_all"]))

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability


def make_trace(family: str, seed: int, model_directory: str, clock: VirtualClock) -> Trace:
    """Makes the trace FAMILY/SEED; the same arguments give the same trace."""
    rng = random.Random(f"{family}/{seed}")
    scenario = families.FAMILIES[family](rng)
    clock.now = 0.0
    engine = Engine(trace_file.plain(scenario.config), model_directory, clock)
    generator = TraceGenerator(f"{family}/{seed}", scenario, rng, engine)
    generator.run()
    return generator.trace


def run(family: str, count: int, seed: int, output: pathlib.Path) -> int:
    """Writes OUTPUT/FAMILY.jsonl.gz, and what ends in an error to OUTPUT/defects."""
    if family not in families.FAMILIES:
        raise ValueError(f"unknown family {family!r}; `record.py families` names them")
    clock = VirtualClock()
    clock.install()
    model_directory = make_model_directory()
    whole: list[Trace] = []
    failed: list[Trace] = []
    for number in range(seed, seed + count):
        trace = make_trace(family, number, model_directory, clock)
        if trace.error is None:
            whole.append(trace)
        else:
            failed.append(trace)
            print(f"{trace.name}: {trace.error}", flush=True)
    output.mkdir(parents=True, exist_ok=True)
    if whole:
        trace_file.write_traces(output / f"{family}.jsonl.gz", whole)
    if failed:
        defects = output / "defects"
        defects.mkdir(exist_ok=True)
        trace_file.write_traces(defects / f"{family}.defects.jsonl.gz", failed)
    steps = sum(len(trace.steps) for trace in whole)
    print(f"{family}: {len(whole)} traces of {steps} steps, {len(failed)} end in an error")
    return 0
