#!/bin/sh
# Runs record_test.py under Bazel, whose own launcher for Python looks for a `python` that Debian
# doesn't have.
exec python3 "$(dirname "$0")/record_test.py"
