"""`record.py verify`: the real scheduler must give every answer that a recording holds."""

import itertools
import pathlib

import compare
import trace_file
from clock import VirtualClock
from engine import REFERENCE, Engine
from trace_file import Trace
from vllm_setup import make_model_directory


def first_difference(trace: Trace, model_directory: str, clock: VirtualClock) -> str | None:
    """Replays `trace`; returns where and how an answer differs first, or None."""
    if trace.reference != REFERENCE:
        return f"recorded from {trace.reference}, and this is {REFERENCE}"
    clock.now = 0.0
    engine = Engine(trace_file.plain(trace.config), model_directory, clock)
    for number, step in enumerate(trace.steps, 1):
        answer = trace_file.plain(engine.handle(trace_file.plain(step.command)))
        difference = compare.first_difference(step.answer, answer)
        if difference is not None:
            return f"step {number}, {step.command['op']}: {difference}"
    return None


def run(files: list[pathlib.Path], first: int | None) -> int:
    """Verifies the files, prints a line each and one for every trace that differs."""
    clock = VirtualClock()
    clock.install()
    model_directory = make_model_directory()
    all_same = True
    for path in files:
        same = total = 0
        for trace in itertools.islice(trace_file.read_traces(path), first):
            total += 1
            difference = first_difference(trace, model_directory, clock)
            if difference is None:
                same += 1
            else:
                print(f"{trace.name}: {difference}", flush=True)
        print(f"{path}: {same} of {total} traces the same", flush=True)
        all_same = all_same and same == total and total > 0
    return 0 if all_same else 1
