"""Runs Python's unittest under Bazel so that each case counts by name, skipped ones as skipped.

Bazel makes one passed case of a test that says nothing about its cases; this says it, in the file
that XML_OUTPUT_FILE names.
"""

import os
import sys
import unittest
import xml.etree.ElementTree as ET


class _Result(unittest.TextTestResult):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cases = []

    def _add(self, test, kind=None, message=""):
        self.cases.append((test.id(), kind, message))

    def addSuccess(self, test):
        super().addSuccess(test)
        self._add(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._add(test, "failure", str(err[1]))

    def addError(self, test, err):
        super().addError(test, err)
        self._add(test, "error", str(err[1]))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._add(test, "skipped", reason)


def main():
    """Runs the tests of __main__; the exit status is unittest's."""
    program = unittest.main(
        exit=False, testRunner=unittest.TextTestRunner(verbosity=2, resultclass=_Result))
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        suite = ET.Element("testsuite", name="unittest", tests=str(len(program.result.cases)))
        for name, kind, message in program.result.cases:
            module, _, case = name.rpartition(".")
            element = ET.SubElement(suite, "testcase", name=case, classname=module, status="run")
            if kind:
                ET.SubElement(element, kind, message=message)
        root = ET.Element("testsuites")
        root.append(suite)
        ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    sys.exit(0 if program.result.wasSuccessful() else 1)
