"""Checks of the recorder.

What needs vLLM runs under the interpreter that TALLY_VLLM_PYTHON names and is skipped by name
without it; the rest runs anywhere.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

_HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE))

import compare  # noqa: E402
import trace_file  # noqa: E402
from trace_file import Step, Trace  # noqa: E402

_RECORDINGS = _HERE.parent / "vllm-0.20.0"
_BUG_CASES = _HERE.parent.parent / "conformance/cases/bug_cases.jsonl"
_INTERPRETER = os.environ.get("TALLY_VLLM_PYTHON", "")
_NEEDS_VLLM = unittest.skipUnless(
    _INTERPRETER, "TALLY_VLLM_PYTHON names no interpreter with vLLM (golden/record/install.sh)"
)


def _trace() -> Trace:
    steps = [
        Step({"op": "add", "t": 0.5, "id": "a"}, {}),
        Step({"op": "schedule", "t": 1.0}, {"tokens": [["a", 3]]}),
    ]
    return Trace("family/7", "vllm 0.20.0", {"block_size": 4}, steps)


class CompareTest(unittest.TestCase):
    def test_equal_values_have_no_difference(self) -> None:
        value = {"a": [1, {"b": None}], "c": 0.1}
        self.assertIsNone(compare.first_difference(value, trace_file.plain(value)))

    def test_names_the_path_of_the_first_difference(self) -> None:
        difference = compare.first_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]})
        self.assertEqual(difference, "$.a[1].b: expected 2, got 3")

    def test_missing_and_additional_keys_differ(self) -> None:
        self.assertEqual(compare.first_difference({"a": 1}, {}), "$.a: expected 1, got nothing")
        self.assertEqual(compare.first_difference({}, {"a": 1}), "$.a: expected nothing, got 1")

    def test_the_last_bit_of_a_number_differs(self) -> None:
        self.assertIsNotNone(compare.first_difference(0.1 + 0.2, 0.3))

    def test_true_is_not_one(self) -> None:
        self.assertIsNotNone(compare.first_difference(True, 1))

    def test_a_longer_array_differs(self) -> None:
        self.assertEqual(compare.first_difference([1], [1, 2]), "$: expected 1 entries, got 2")


class TraceFileTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def test_reads_what_it_wrote(self) -> None:
        path = self.directory / "traces.jsonl.gz"
        trace_file.write_traces(path, [_trace(), _trace()])
        self.assertEqual(list(trace_file.read_traces(path)), [_trace(), _trace()])

    def test_the_same_traces_give_the_same_bytes(self) -> None:
        first, second = self.directory / "first.jsonl.gz", self.directory / "second.jsonl.gz"
        trace_file.write_traces(first, [_trace()])
        trace_file.write_traces(second, [_trace()])
        self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_names_the_line_of_an_unreadable_step(self) -> None:
        path = self.directory / "broken.jsonl"
        header = '{"format":"prefill-trace/1","name":"a","reference":"b","config":{}}\n'
        path.write_text(header + '{"in":{}}\n', encoding="utf-8")
        with self.assertRaisesRegex(ValueError, r"broken\.jsonl:2: 'out'"):
            list(trace_file.read_traces(path))

    def test_refuses_another_format(self) -> None:
        path = self.directory / "other.jsonl"
        path.write_text('{"format":"prefill-trace/2"}\n', encoding="utf-8")
        with self.assertRaisesRegex(ValueError, "prefill-trace/2"):
            list(trace_file.read_traces(path))


@_NEEDS_VLLM
class VllmTest(unittest.TestCase):
    """Each case starts the environment's interpreter, which takes about half a minute."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def _run(self, *arguments: str | pathlib.Path, script: str = "record.py") -> tuple[int, str]:
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.directory),  # vLLM writes caches there
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [_INTERPRETER, _HERE / script, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def test_recordings_replay(self) -> None:
        files = sorted(_RECORDINGS.glob("**/*.jsonl.gz"))
        self.assertTrue(files)
        status, text = self._run("verify", "--first", "1", *files)
        self.assertEqual(status, 0, text)
        self.assertEqual(text.count("1 of 1 traces the same"), len(files), text)

    def test_a_changed_answer_is_found(self) -> None:
        trace = next(trace_file.read_traces(_RECORDINGS / "fcfs.jsonl.gz"))
        for step in trace.steps:
            if step.command["op"] == "schedule" and step.answer["tokens"]:
                step.answer["free_blocks"] += 1
                break
        path = self.directory / "changed.jsonl.gz"
        trace_file.write_traces(path, [trace])
        status, text = self._run("verify", path)
        self.assertEqual(status, 1, text)
        self.assertRegex(text, r"fcfs/0: step \d+, schedule: \$\.free_blocks: expected")

    def test_a_family_and_a_seed_give_the_same_bytes(self) -> None:
        for name in ("first", "second"):
            status, text = self._run("generate", "grammar", "2", "--output", self.directory / name)
            self.assertEqual(status, 0, text)
        first, second = (
            (self.directory / name / "grammar.jsonl.gz").read_bytes()
            for name in ("first", "second")
        )
        self.assertEqual(first, second)
        recorded = trace_file.read_traces(_RECORDINGS / "grammar.jsonl.gz")
        made = trace_file.read_traces(self.directory / "first" / "grammar.jsonl.gz")
        for _ in range(2):
            self.assertEqual(next(made), next(recorded))

    def test_bug_cases_say_what_the_release_does(self) -> None:
        status, text = self._run("cases", _BUG_CASES)
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"31 of 31 cases as they say")

    def test_a_case_that_is_wrong_is_found(self) -> None:
        path = self.directory / "cases.jsonl"
        text = _BUG_CASES.read_text(encoding="utf-8")
        path.write_text(text.replace('"steps":32', '"steps":33', 1), encoding="utf-8")
        status, text = self._run("cases", path)
        self.assertEqual(status, 1, text)
        self.assertRegex(text, r"B21_reserved: step \d+, summary: \$\.steps: expected 33, got 32")

    def test_unknown_family_is_refused(self) -> None:
        status, text = self._run("generate", "nothing", "1", "--output", self.directory)
        self.assertEqual(status, 2, text)
        self.assertIn("unknown family 'nothing'", text)

    def test_a_watched_engine_replays(self) -> None:
        path = self.directory / "watched.jsonl.gz"
        status, text = self._run("watch", path)
        self.assertEqual(status, 0, text)
        trace = next(trace_file.read_traces(path))
        operations = {step.command["op"] for step in trace.steps}
        self.assertLessEqual({"add", "schedule", "update", "abort"}, operations)
        status, text = self._run("verify", path)
        self.assertEqual(status, 0, text)

    def test_a_watched_replay_is_the_recording(self) -> None:
        files = [
            _RECORDINGS / f"{family}.jsonl.gz"
            for family in ("aborts", "async_sched", "draft_gaps", "pause", "resets", "spec_decode")
        ]
        status, text = self._run(*files, script="watch_check.py")
        self.assertEqual(status, 0, text)


if __name__ == "__main__":
    sys.path.insert(0, str(_HERE.parent.parent / ".ci"))
    import bazel_unittest

    bazel_unittest.main()
