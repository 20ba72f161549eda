"""`record.py cases`: the real scheduler must do what conformance/cases says that it does.

The format, and what `step` and `summary` mean: conformance/cases/README.md.
"""

import json
import pathlib
from collections.abc import Callable, Iterator

import trace_file
from clock import VirtualClock
from engine import Engine
from trace_file import Json
from vllm_setup import make_model_directory

FORMAT = "prefill-cases/1"
_EXPECTED = ("expect", "expect_vllm_0_20")
_FIRST_SAMPLED_TOKEN = 5001


def read_cases(path: pathlib.Path) -> Iterator[tuple[Json, list[Json]]]:
    """The cases of a file, each as its header and its steps."""
    case: tuple[Json, list[Json]] | None = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line:
            continue
        content = json.loads(line)
        if "format" in content:
            if content["format"] != FORMAT:
                raise ValueError(f"{path}: format {content['format']}, wanted {FORMAT}")
            if case is not None:
                yield case
            case = (content, [])
        elif case is None:
            raise ValueError(f"{path}: a step before the first case")
        else:
            case[1].append(content)
    if case is not None:
        yield case


def part_differs(expected: object, actual: object, path: str = "$") -> str | None:
    """Where `actual` is first not as `expected` says; what is not listed is not compared."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key, value in expected.items():
            if key not in actual:
                if value is None or value == 0:
                    continue
                return f"{path}.{key}: expected {value!r}, got nothing"
            if difference := part_differs(value, actual[key], f"{path}.{key}"):
                return difference
        return None
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for place, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
            if difference := part_differs(wanted, got, f"{path}[{place}]"):
                return difference
        return None
    if isinstance(expected, float) and isinstance(actual, float | int):
        if abs(expected - actual) <= 1e-9 * max(abs(expected), abs(actual)):
            return None
    elif expected == actual:
        return None
    return f"{path}: expected {expected!r}, got {actual!r}"


class CaseRun:
    """One case on one engine: carries out its commands, `step` and `summary` included."""

    def __init__(self, answer: Callable[[Json], Json]) -> None:
        self._answer = answer
        self._commands = 1  # configure is the first
        self._steps = self._scheduled_tokens = 0
        self._next_token = _FIRST_SAMPLED_TOKEN
        self._prompt_tokens: dict[str, int] = {}
        self._samples: list[str] = []  # of the newest schedule: whose prefill it completes
        self._requests: Json = {}
        self._shared_by_groups: dict[str, list[int]] = {}

    def carry_out(self, command: Json) -> Json:
        match command["op"]:
            case "summary":
                return {
                    "steps": self._steps,
                    "scheduled_tokens": self._scheduled_tokens,
                    "requests": self._requests,
                    "shared_by_groups": self._shared_by_groups,
                }
            case "step":
                return self._carry_out_steps(command)
            case _:
                return self._send(command)

    def _send(self, command: Json) -> Json:
        command = {"t": float(self._commands)} | command
        self._commands += 1
        if command["op"] == "add":
            self._prompt_tokens[command["id"]] = len(command["prompt"])
        answer = self._answer(command)
        if "error" not in answer:
            if command["op"] == "schedule":
                self._take_schedule(answer)
            elif command["op"] == "update":
                self._take_update(answer)
        return answer

    def _take_schedule(self, answer: Json) -> None:
        tokens = dict(answer["tokens"])
        self._steps += 1
        self._scheduled_tokens += sum(tokens.values())
        entries = [(new[0], new[2], 0) for new in answer["new"]]
        entries += [(cached[0], cached[2], cached[3]) for cached in answer["cached"]]
        self._samples = sorted(
            request
            for request, computed, outputs in entries
            if computed + tokens[request] >= self._prompt_tokens[request] + outputs
        )
        for request, groups, _ in answer["new"]:
            blocks = [block for group in groups for block in group if block != 0]
            twice = [block for place, block in enumerate(blocks) if block in blocks[:place]]
            if twice:
                self._shared_by_groups.setdefault(request, []).extend(twice)

    def _take_update(self, answer: Json) -> None:
        for output in answer["outputs"]:
            request = self._requests.setdefault(output["id"], {"tokens": [], "prefill": []})
            request["tokens"] += output["tokens"]
            request["num_tokens"] = len(request["tokens"])
            if "prefill" in output:
                request["prefill"].append(output["prefill"])
            if "finish" in output:
                request["finish"] = output["finish"]

    def _carry_out_steps(self, command: Json) -> Json:
        until_done = command.get("until_done")
        reports = {k: v for k, v in command.items() if k not in ("op", "times", "until_done")}
        both: Json = {}
        for _ in range(until_done or command.get("times", 1)):
            schedule = self._send({"op": "schedule"})
            if "error" in schedule:
                return schedule
            sampled = {}
            for request in self._samples:
                sampled[request] = [self._next_token]
                self._next_token += 1
            update = self._send({"op": "update", "sampled": sampled} | reports)
            if "error" in update:
                return update
            both = {"schedule": schedule, "update": update}
            if until_done and self._send({"op": "state"})["unfinished"] == 0:
                return both
        if until_done:
            return {"error": "NotDone", "message": f"after {until_done} steps"}
        return both


def first_difference(steps: list[Json], answer: Callable[[Json], Json]) -> str | None:
    """Runs a case; returns where and how an answer differs first, or None."""
    run = CaseRun(answer)
    for number, step in enumerate(steps, 1):
        got = run.carry_out(step["in"])
        expected = [step[key] for key in _EXPECTED if key in step]
        for part in expected:
            if difference := part_differs(part, got):
                return f"step {number}, {step['in']['op']}: {difference}"
        if "error" in got:
            if not any("error" in part for part in expected):
                return f"step {number}, {step['in']['op']}: {got}"
            return None
    return None


def run(files: list[pathlib.Path]) -> int:
    """Runs the files' cases, prints a line for each that differs and one for each file."""
    clock = VirtualClock()
    clock.install()
    model_directory = make_model_directory()
    all_same = True
    for path in files:
        same = total = 0
        for header, steps in read_cases(path):
            clock.now = 0.0
            engine = Engine(header["config"], model_directory, clock)
            total += 1
            difference = first_difference(
                steps, lambda command, e=engine: trace_file.plain(e.handle(command))
            )
            if difference is None:
                same += 1
            else:
                print(f"{header['id']}: {difference}", flush=True)
        print(f"{path}: {same} of {total} cases as they say", flush=True)
        all_same = all_same and same == total and total > 0
    return 0 if all_same else 1
