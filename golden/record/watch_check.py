"""Watches the scheduler while a recording is replayed: the watch must write the recording again.

  watch_check.py FILE...      the first traces of each file; exit status 1 when a command differs

A part of record_test.py, of its own because it runs under the interpreter with vLLM.
"""

import runtime

if __name__ == "__main__":
    runtime.prepare()

import itertools  # noqa: E402
import pathlib  # noqa: E402
import sys  # noqa: E402

import compare  # noqa: E402
import trace_file  # noqa: E402
from clock import VirtualClock  # noqa: E402
from engine import Engine  # noqa: E402
from trace_file import Json, Step, Trace  # noqa: E402
from vllm_setup import make_model_directory  # noqa: E402
from watch import SchedulerWatch  # noqa: E402

_TRACES_OF_A_FILE = 4

# What only asks, or never reaches the scheduler, isn't watched.
_WATCHED = ("add", "schedule", "update", "abort", "reset_prefix_cache", "pause")


def _watched_steps(trace: Trace) -> list[Json]:
    """The steps that a watch sees; of an add, which has many spellings, only the request's id."""
    return [_comparable(step) for step in trace.steps if step.command["op"] in _WATCHED]


def _comparable(step: Step) -> Json:
    command = dict(step.command)
    if command["op"] == "add":
        command = {name: command[name] for name in ("op", "t", "id", "prompt")}
    return {"in": command, "out": step.answer}


def main(files: list[str]) -> int:
    clock = VirtualClock()
    clock.install()
    model_directory = make_model_directory()
    status = 0
    for path in files:
        traces = trace_file.read_traces(pathlib.Path(path))
        for trace in itertools.islice(traces, _TRACES_OF_A_FILE):
            clock.now = 0.0
            engine = Engine(trace_file.plain(trace.config), model_directory, clock)
            if any(step.command.get("resumable") for step in trace.steps):
                continue
            watch = SchedulerWatch(engine.scheduler, trace.name, clock, clock.read)
            for step in trace.steps:
                engine.handle(trace_file.plain(step.command))
            difference = compare.first_difference(
                _watched_steps(trace), _watched_steps(watch.trace)
            )
            if difference is not None:
                print(f"{trace.name}: {difference}")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
