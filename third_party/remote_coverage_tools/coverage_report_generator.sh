#!/bin/sh
echo "coverage reports are not supported: Bazel's coverage tools are not packaged in Debian" >&2
exit 1
