"""Reading and writing recordings: JSON Lines with any number of traces, gzip-compressed or not."""

import dataclasses
import gzip
import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

FORMAT = "prefill-trace/1"

Json = dict[str, Any]


@dataclasses.dataclass
class Step:
    """One command and its answer: the "in" and the "out" of a line."""

    command: Json
    answer: Json


@dataclasses.dataclass
class Trace:
    """One run of an engine, from its configuration on."""

    name: str
    reference: str
    config: Json
    steps: list[Step]

    @property
    def error(self) -> Json | None:
        """The answer that ended the trace, if it was an error."""
        if self.steps and "error" in self.steps[-1].answer:
            return self.steps[-1].answer
        return None


def encode(value: object) -> str:
    """The JSON text of a line, without spaces."""
    return json.dumps(value, separators=(",", ":"))


def plain(value: object) -> Any:
    """A deep copy of `value` as JSON would give it back: tuples become lists, keys strings."""
    return json.loads(json.dumps(value))


def read_traces(path: pathlib.Path) -> Iterator[Trace]:
    """Yields the traces of a file one by one.

    Raises ValueError that names file and line when a line is neither a header nor a step.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    trace: Trace | None = None
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                if "format" in record:
                    if record["format"] != FORMAT:
                        raise ValueError(f"format {record['format']!r}, expected {FORMAT!r}")
                    if trace is not None:
                        yield trace
                    trace = Trace(record["name"], record["reference"], record["config"], [])
                elif trace is None:
                    raise ValueError("a step before the first header")
                else:
                    trace.steps.append(Step(record["in"], record["out"]))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path}:{number}: {error}") from error
    if trace is not None:
        yield trace


def write_traces(path: pathlib.Path, traces: Iterable[Trace]) -> None:
    """Writes the traces to `path`; the same traces give the same bytes (no time, no file name)."""
    with (
        open(path, "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as packed,
    ):
        for trace in traces:
            header = {
                "format": FORMAT,
                "name": trace.name,
                "reference": trace.reference,
                "config": trace.config,
            }
            packed.write((encode(header) + "\n").encode())
            for step in trace.steps:
                line = encode({"in": step.command, "out": step.answer})
                packed.write((line + "\n").encode())
