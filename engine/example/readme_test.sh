#!/usr/bin/env bash
# README.md shows the example as it is: its source, its target and what it prints.
#
#   readme_test.sh PROGRAM SOURCE BUILD README
set -euo pipefail
program=$1 source=$2 build=$3 readme=$4

# Lines of a text indented by four spaces, as README shows them; empty ones stay empty.
indented() { sed -e 's/^\(.\)/    \1/'; }

failures=0
# shown NAME TEXT: README has the text as whole lines, one after another.
shown() {
  if [[ $'\n'$(<"$readme")$'\n' != *$'\n'"$2"$'\n'* ]]; then
    printf 'README.md does not show %s:\n%s\n' "$1" "$2"
    failures=1
  fi
}

shown "the source" "$(indented <"$source")"
target=$(sed -n '/^cc_binary(/,/^)/p' "$build" | indented)
shown "the target" "$target"
output=$("$program")
[[ -n $output ]] || { echo "the example prints nothing"; failures=1; }
shown "the output" "$(indented <<<"$output")"
exit "$failures"
