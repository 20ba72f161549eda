#!/usr/bin/env bash
# Tests of bazelw with stand-ins for apt, dpkg, sudo and Bazel: nothing is installed and no Bazel
# runs. Each stand-in writes its arguments to $calls.
# shellcheck disable=SC2016,SC2317  # the stand-ins' text; functions called by name
set -uo pipefail

work=$TEST_TMPDIR/bazelw_test
failures=0

# A workspace with bazelw, two packages to need, and stand-ins that find the first one installed.
set_up() {
  rm -rf "$work"
  mkdir -p "$work/tally/third_party" "$work/tools" "$work/elsewhere"
  cp -L bazelw "$work/tally/bazelw"
  touch "$work/tally/WORKSPACE"
  printf '# two packages\nhere  # why\nabsent-dev # why\n' \
    >"$work/tally/third_party/debian-packages.txt"
  printf 'NAME="Some Linux"\nID=somelinux\nID_LIKE="ubuntu debian"\n' >"$work/os-release"
  calls=$work/calls
  : >"$calls"
  tool dpkg-query '
    if [[ $* == *bazel-bootstrap ]]; then printf 4.2.3+ds-9; exit; fi
    echo "installed here"
    [[ -e $work/has-all ]] && echo "installed absent-dev"
    exit 1'
  tool apt-get 'echo "apt-get $*" >>"$calls"; [[ " $* " != *" $failing "* ]]'
  tool sudo 'echo "sudo" >>"$calls"; exec "$@"'
  tool bazel '
    if [[ $1 == --version ]]; then echo "bazel $version"; exit; fi
    { printf "bazel"; printf " <%s>" "$@"; echo " in $PWD"; } >>"$calls"
    exit 7'
  export work calls version=4.2.3 failing=nothing
  export TALLY_OS_RELEASE=$work/os-release
  unset TALLY_SKIP_INSTALL TALLY_PACKAGES
}

tool() {
  printf '#!/usr/bin/env bash\n%s\n' "$2" >"$work/tools/$1"
  chmod +x "$work/tools/$1"
}

# Runs bazelw from the folder $1; leaves the exit status in $status and its messages in $messages.
bazelw() {
  local folder=$1
  shift
  messages=$(cd "$folder" && PATH=$work/tools:$PATH "$work/tally/bazelw" "$@" 2>&1)
  status=$?
}

expect() {
  local what=$1
  shift
  if ! "$@"; then
    echo "FAILED: ${FUNCNAME[1]}: $what"
    echo "status $status; messages:" "$messages"
    echo "calls:"
    cat "$calls"
    failures=$((failures + 1))
  fi
}

says() { grep -qF -- "$1" <<<"$messages"; }
called() { grep -qF -- "$1" "$calls"; }
not() { ! "$@"; }

installs_what_is_missing_then_runs_bazel() {
  bazelw "$work/tally" test //...
  expect "Bazel's exit status" test "$status" = 7
  expect "what it installs" says "installing: absent-dev"
  expect "one update" test "$(grep -c 'apt-get update' "$calls")" = 1
  expect "the install" called "--no-install-recommends absent-dev"
  expect "only what is missing" not called "here"
  expect "Bazel's arguments" called "bazel <test> <//...> in $work/tally"
}

does_not_touch_apt_when_nothing_is_missing() {
  touch "$work/has-all"
  bazelw "$work/tally" test //...
  expect "no apt-get" not called "apt-get"
  expect "no message" test -z "$messages"
  expect "Bazel" called "bazel <test> <//...>"
}

no_install_names_and_stops() {
  bazelw "$work/tally" --no-install
  expect "exit status" test "$status" = 3
  expect "the name" says "missing: absent-dev"
  expect "no calls" test ! -s "$calls"
  touch "$work/has-all"
  bazelw "$work/tally" --no-install
  expect "exit status" test "$status" = 0
  expect "the message" says "nothing missing"
  expect "no calls" test ! -s "$calls"
}

reads_further_lists() {
  touch "$work/has-all"
  echo 'further # why' >"$work/more.txt"
  TALLY_PACKAGES=$work/more.txt bazelw "$work/tally" --no-install
  expect "the name" says "missing: further"
}

failed_install_says_what_is_needed() {
  failing=update bazelw "$work/tally" test //...
  expect "an update that fails is not the end" called "bazel <test>"
  : >"$calls"
  failing=install bazelw "$work/tally" test //...
  expect "exit status" test "$status" = 3
  expect "the names" says "Needed: absent-dev"
  expect "no Bazel" not called "bazel"
}

explains_on_another_system() {
  echo 'ID=fedora' >"$work/os-release"
  bazelw "$work/tally" test //...
  expect "exit status" test "$status" = 3
  expect "the system" says "not Debian"
  expect "the names" says "absent-dev"
  expect "no calls" test ! -s "$calls"
  TALLY_SKIP_INSTALL=1 bazelw "$work/tally" test //...
  expect "Bazel on request" called "bazel <test> <//...>"
}

refuses_an_unsuitable_bazel() {
  touch "$work/has-all"
  local unsuitable
  for unsuitable in 3.7.2 4.1.0 8.0.0; do
    version=$unsuitable bazelw "$work/tally" test //...
    expect "exit status" test "$status" = 3
    expect "the version" says "Bazel $unsuitable"
  done
  for suitable in 4.2.3 "no_version" 5.0.0 7.4.1; do
    version=$suitable bazelw "$work/tally" test //...
    expect "$suitable is suitable" test "$status" = 7
  done
}

works_from_any_folder() {
  touch "$work/has-all"
  bazelw "$work/elsewhere" run --config=opt //:program -- run file
  expect "the caller's folder" \
    called "<run> <--run_under=env BUILD_WORKING_DIRECTORY=$work/elsewhere>"
  expect "the workspace" called "<--config=opt> <//:program> <--> <run> <file> in $work/tally"
  : >"$calls"
  bazelw "$work/elsewhere" build //:run
  expect "other commands as they are" called "bazel <build> <//:run> in $work/tally"
  : >"$calls"
  bazelw "$work/tally/third_party" run //:program
  expect "Bazel finds it inside" called "bazel <run> <//:program> in $work/tally/third_party"
  : >"$calls"
  ln -s "$work/tally/bazelw" "$work/elsewhere/link"
  messages=$(cd "$work/elsewhere" && PATH=$work/tools:$PATH ./link build //:x 2>&1)
  expect "through a link" called "bazel <build> <//:x> in $work/tally"
}

for test in installs_what_is_missing_then_runs_bazel does_not_touch_apt_when_nothing_is_missing \
  no_install_names_and_stops reads_further_lists failed_install_says_what_is_needed \
  explains_on_another_system refuses_an_unsuitable_bazel works_from_any_folder; do
  set_up
  "$test"
done
echo "$failures failures"
exit "$((failures > 0))"
