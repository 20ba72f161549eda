#!/bin/bash
# The program as a user meets it: output, exit codes, files that can't be read or written.
set -u
tally="$PWD/$1"
cd "$TEST_TMPDIR" || exit 1
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# check NAME WANTED_CODE WANTED_TEXT COMMAND...: the text is searched in both outputs.
check() {
  local name="$1" code="$2" text="$3"
  shift 3
  local output
  output=$("$@" 2>&1)
  local got=$?
  [ "$got" -eq "$code" ] || fail "$name: exit code $got, wanted $code: $output"
  grep -q -F -- "$text" <<<"$output" || fail "$name: wanted '$text' in: $output"
}

row='{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}'
printf '%s\n%s\n' "$row" "$row" >good.jsonl
gzip -c good.jsonl >good.jsonl.gz
head -c 40 good.jsonl.gz >cut.jsonl.gz
printf '%s\n{"timestamp": 1}\n%s\n' "$row" "$row" >bad.jsonl
: >empty.jsonl
head -c 5000 /dev/urandom >noise.bin
printf '{"block_size": 32, "max_num_seqs": 8}' >engine.json
printf '{"block_sise": 32}' >wrong.json

check "embedded default" 0 "= computed + local + external" "$tally" replay --limit 50
check "a file" 0 "infinite cache: 50.0 %" "$tally" replay good.jsonl
check "a compressed file" 0 "infinite cache: 50.0 %" "$tally" replay good.jsonl.gz
check "an empty file" 0 "(empty)" "$tally" replay empty.jsonl
check "a configuration" 0 "blocks of 32 tokens, 8 sequences" "$tally" replay good.jsonl --config engine.json
check "flags win" 0 "blocks of 64 tokens, 8 sequences" \
  "$tally" replay good.jsonl --config engine.json --block-size 64
check "a broken row" 1 "bad.jsonl:2:17: input_length: missing in the row" "$tally" replay bad.jsonl
check "a broken row passed over" 0 "bad.jsonl:2:17: input_length" "$tally" replay bad.jsonl --skip-bad
check "no such file" 1 "none.jsonl: No such file" "$tally" replay none.jsonl
check "a directory" 1 "a directory, wanted a file" "$tally" replay .
check "noise" 1 "wanted a workload" "$tally" replay noise.bin
check "a cut file" 1 "the compressed data end too early" "$tally" replay cut.jsonl.gz
check "no such configuration" 2 "none.json: No such file" "$tally" replay good.jsonl --config none.json
check "a configuration that is a folder" 2 "Is a directory" "$tally" replay good.jsonl --config .
check "a wrong configuration" 2 "wrong.json: block_sise: 32, an unknown key" \
  "$tally" replay good.jsonl --config wrong.json
check "an unknown model" 2 'model: "x", wanted one of' "$tally" replay --model x
check "an unknown flag" 2 "--no-such-flag" "$tally" replay --no-such-flag
check "a number out of range" 2 "--num-blocks" "$tally" replay --num-blocks 1
check "a seed out of range" 2 "--seed" "$tally" replay --seed 18446744073709551616
check "a negative seed" 2 "--seed" "$tally" replay --seed -1
check "two kinds of arrivals" 2 "excludes" "$tally" replay --rate 1 --concurrency 1
check "no subcommand" 2 "subcommand" "$tally"
check "help" 0 "Exit codes: 0 done" "$tally" replay --help
check "a folder that is missing" 1 "can't be written" "$tally" replay good.jsonl --json none/report.json

if [ -w /dev/full ]; then
  check "a full disk" 1 "No space left" "$tally" replay good.jsonl --json /dev/full
  "$tally" replay good.jsonl >/dev/full 2>message
  [ $? -eq 1 ] || fail "full standard output: exit code $?"
  grep -q "standard output: can't be written" message || fail "full standard output: $(cat message)"
fi

# Paths of `bazel run` are meant from the user's folder, for input and output.
mkdir -p user && cp good.jsonl user/mine.jsonl
check "the user's folder" 0 "mine.jsonl (mooncake)" \
  env BUILD_WORKING_DIRECTORY="$PWD/user" "$tally" replay mine.jsonl --json report.json
grep -q '"format": "tally-replay/1"' user/report.json || fail "no report in the user's folder"

# No bar where nobody looks.
"$tally" replay --limit 300 2>bar >/dev/null
[ ! -s bar ] || fail "wrote to a standard error that is no terminal: $(head -c 200 bar)"

# An interrupted run prints what it has.
"$tally" replay --limit 100000000 >interrupted 2>&1 &
process=$!
sleep 1
kill -INT "$process"
wait "$process"
code=$?
[ "$code" -eq 130 ] || fail "interrupted: exit code $code, wanted 130"
grep -q "INTERRUPTED" interrupted || fail "interrupted: $(cat interrupted)"
grep -q "= computed + local + external" interrupted || fail "interrupted: $(cat interrupted)"

[ "$failures" -eq 0 ]
