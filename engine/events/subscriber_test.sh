#!/bin/sh
# Runs subscriber_test.py under an interpreter that has pyzmq and msgspec, if TALLY_ZMQ_PYTHON names
# one.
exec "${TALLY_ZMQ_PYTHON:-python3}" "$(dirname "$0")/subscriber_test.py"
