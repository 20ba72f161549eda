#!/usr/bin/env python3
"""Tests of count-results: what people call passed, failed and skipped is counted as such."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import tempfile
import unittest


def load_script():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "count-results")
    loader = importlib.machinery.SourceFileLoader("count_results", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


count_results = load_script()

PASSED = '<testcase name="Passes" classname="Suite" status="run" result="completed"/>'
FAILED = '<testcase name="Fails" classname="Suite"><failure message="1 is not 2"/></testcase>'
SKIPPED = ('<testcase name="Skips" classname="Suite" status="run" result="skipped">'
           '<skipped message="no GPU"/></testcase>')
DISABLED = '<testcase name="Off" classname="Suite" status="notrun" result="suppressed"/>'


class CountResultsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.events = []

    def add_result(self, label, cases, status="PASSED", xml=None, **key):
        path = os.path.join(self.folder, f"{len(self.events)}.xml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"<testsuites><testsuite>{cases}</testsuite></testsuites>"
                       if xml is None else xml)
        self.events.append({
            "id": {"testResult": {"label": label, **key}},
            "testResult": {
                "status": status,
                "testActionOutput": [{"name": "test.xml", "uri": f"file://{path}"}],
            },
        })

    def add_target(self, label, **body):
        self.events.append({"id": {"targetCompleted": {"label": label}}, **body})

    def run_script(self, succeeded=True, options=()):
        """The printed lines and the exit status."""
        self.events.append({"id": {"buildFinished": {}},
                            "finished": {"overallSuccess": succeeded}})
        path = os.path.join(self.folder, "events.json")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(event) + "\n" for event in self.events)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = count_results.main([*options, path])
        return output.getvalue().splitlines(), status

    def test_counts_cases_and_not_targets(self):
        self.add_target("//a:t", completed={"success": True})
        self.add_result("//a:t", PASSED + PASSED)
        self.add_result("//b:t", PASSED)
        self.assertEqual(self.run_script(), (["3 passed, 0 failed, 0 skipped"], 0))

    def test_names_failed_case(self):
        self.add_result("//a:t", PASSED + FAILED, status="FAILED")
        lines, status = self.run_script(succeeded=False)
        self.assertEqual(lines, ["failed: //a:t Suite.Fails", "1 passed, 1 failed, 0 skipped"])
        self.assertEqual(status, 1)

    def test_skipped_and_disabled_are_not_passed(self):
        self.add_result("//a:t", PASSED + SKIPPED + DISABLED)
        self.assertEqual(self.run_script(), ([
            "skipped: //a:t Suite.Skips: no GPU",
            "skipped: //a:t Suite.Off: disabled",
            "1 passed, 0 failed, 2 skipped",
        ], 0))

    def test_only_skipped_is_no_success(self):
        self.add_result("//a:t", SKIPPED)
        self.assertEqual(self.run_script()[1], 1)

    def test_no_test_at_all_is_no_success(self):
        self.assertEqual(self.run_script(), (["0 passed, 0 failed, 0 skipped"], 1))

    def test_timeout_without_failed_case_is_a_failure(self):
        self.add_result("//a:t", PASSED, status="TIMEOUT")
        lines, status = self.run_script(succeeded=False)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")
        self.assertEqual(status, 1)

    def test_unreadable_xml_is_a_failure(self):
        self.add_result("//a:t", "", xml="<testsuites>")
        self.add_result("//b:t", PASSED)
        self.assertEqual(self.run_script()[0][-1], "1 passed, 1 failed, 0 skipped")

    def test_bytes_that_xml_forbids_are_no_failure(self):
        self.add_result("//a:t", PASSED.replace("Passes", "Passes/\x01"))
        with open(os.path.join(self.folder, "0.xml"), "ab") as file:
            file.write(b"<!-- \xff -->")
        self.assertEqual(self.run_script(), (["1 passed, 0 failed, 0 skipped"], 0))

    def test_results_are_not_counted_twice(self):
        self.add_result("//a:t", PASSED)
        self.events.append(json.loads(json.dumps(self.events[0])))
        self.events[1]["id"]["testResult"]["run"] = 2
        lines, status = self.run_script()
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")
        self.assertEqual(status, 1)

    def test_pass_without_cases_is_a_failure(self):
        self.add_result("//a:t", "")
        self.assertEqual(self.run_script()[0][-1], "0 passed, 1 failed, 0 skipped")

    def test_target_that_does_not_build_is_a_failure(self):
        self.add_target("//a:t", completed={})
        self.add_result("//b:t", PASSED)
        lines, _ = self.run_script(succeeded=False)
        self.assertEqual(lines, ["failed: //a:t: did not build", "1 passed, 1 failed, 0 skipped"])

    def test_incompatible_target_is_skipped(self):
        self.add_target("//a:t", aborted={"reason": "SKIPPED"})
        self.add_result("//b:t", PASSED)
        self.assertEqual(self.run_script(), ([
            "skipped: //a:t: incompatible with this machine",
            "1 passed, 0 failed, 1 skipped",
        ], 0))

    def test_last_attempt_counts(self):
        self.add_result("//a:t", FAILED, status="FAILED", attempt=1)
        self.add_result("//a:t", PASSED, attempt=2)
        self.assertEqual(self.run_script(), (["1 passed, 0 failed, 0 skipped"], 0))

    def test_each_shard_counts(self):
        self.add_result("//a:t", PASSED, shard=1)
        self.add_result("//a:t", PASSED, shard=2)
        self.assertEqual(self.run_script(), (["2 passed, 0 failed, 0 skipped"], 0))

    def test_bazel_that_fails_before_any_target_is_a_failure(self):
        lines, status = self.run_script(succeeded=False)
        self.assertEqual(lines[-1], "0 passed, 1 failed, 0 skipped")
        self.assertEqual(status, 1)

    def test_failed_step_counts(self):
        self.add_result("//a:t", PASSED)
        self.assertEqual(self.run_script(options=["--failed", "layout"]),
                         (["failed: layout", "1 passed, 1 failed, 0 skipped"], 1))

    def test_missing_events_are_a_failure(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(count_results.main([os.path.join(self.folder, "absent")]), 1)


if __name__ == "__main__":
    unittest.main()
