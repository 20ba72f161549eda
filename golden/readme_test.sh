#!/usr/bin/env bash
# Every recording has a row in its release's README, "| NAME | TRACES | ...", with the number of
# traces that it holds, and every row its recording.
set -euo pipefail
failures=0
for folder in golden/vllm-*/; do
  recordings=("$folder"*.jsonl.gz "$folder"defects/*.jsonl.gz)
  for recording in "${recordings[@]}"; do
    name=$(basename "$recording" .jsonl.gz)
    traces=$(zcat "$recording" | grep -c '^{"format":"prefill-trace/1"')
    grep -qF "| $name | $traces | " "$folder/README.md" && continue
    echo "${folder}README.md has no row '| $name | $traces | ...'"
    failures=1
  done
  rows=$(grep -cE '^\| [a-z0-9_.]+ \| [0-9]+ \| ' "$folder/README.md")
  ((rows == ${#recordings[@]})) && continue
  echo "${folder}README.md has $rows rows for ${#recordings[@]} recordings"
  failures=1
done
exit "$failures"
