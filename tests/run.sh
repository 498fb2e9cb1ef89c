#!/bin/sh
# sh tests/run.sh [--all] [FOLDER...] [CTEST OPTIONS]: installs what is missing, builds in build/, runs tests.
#   sh tests/run.sh                  the tests that must pass before a commit: all except those of GPU kernels
#   sh tests/run.sh --all            also those of GPU kernels, emulated on the CPU
#   sh tests/run.sh nn/activations   builds the tests of that layer only, and runs those of the folder, and of nn/base:
#                                    each member's gradients
# The last line counts test cases and example runs: "N passed, N failed".
# Another build:
#   BUILD=build/address OPTIONS=-DORRERY_SANITIZE=address,undefined TARGETS=nn_tests sh tests/run.sh -R nn_tests
set -u
cd "$(dirname "$0")/.." || exit 1
. examples/install.sh

# Prints the last line that scripts search for, after a failure before the tests.
give_up() {
  echo "$1"
  echo "0 passed, 1 failed"
  exit 1
}

all= folders=
while [ $# -gt 0 ]; do
  case $1 in
    --all) all=yes ;;
    -*) break ;;
    *)
      [ -d "tests/${1#tests/}" ] ||
        give_up "there is no folder tests/${1#tests/}; name one as in tests/run.sh nn/activations"
      folders="$folders ${1#tests/}"
      ;;
  esac
  shift
done
programs=$(for folder in $folders; do echo "${folder%%/*}_tests"; done | sort -u | tr '\n' ' ')
TARGETS=${programs:-${TARGETS:-}}
if [ -z "$all$TARGETS" ]; then
  TARGETS=quick_tests
  set -- -LE '^cuda$' "$@"
fi

install_missing $library_packages $test_packages || give_up "the packages could not be installed"
build=${BUILD:-build}
mkdir -p "$build"
# shellcheck disable=SC2086
if ! cmake -S . -B "$build" -DORRERY_TESTS=ON ${OPTIONS:-} > "$build/configure.log" 2>&1; then
  cat "$build/configure.log"
  give_up "cmake failed"
fi
# shellcheck disable=SC2086
cmake --build "$build" --parallel "$(nproc)" ${TARGETS:+--target $TARGETS} || give_up "the build failed"

status=0
if [ -z "$folders" ]; then
  log=$build/Testing/Temporary/LastTest.log
  ctest --test-dir "$build" --parallel "$(nproc)" --output-on-failure "$@" || status=$?
else
  log=$build/folders.log
  : > "$log"
  for folder in $folders; do
    echo "1/1 Testing: $folder" >> "$log"
    layer=${folder%%/*}
    if "$build/${layer}_tests" "-sf=*/tests/$folder/*,*/tests/$layer/base/*" > "$build/folder.log" 2>&1; then
      echo "Test Passed" >> "$build/folder.log"
    else
      status=1
    fi
    grep -v '^Test Passed' "$build/folder.log"
    cat "$build/folder.log" >> "$log"
  done
fi

# A doctest program counts its cases, an example counts as one; a program that failed without a failed case (a crash,
# a sanitizer's report, a timeout) counts as one more failure.
awk -v status=$status '
  function add() {
    if (!open) return
    passed += cases ? good : ok
    failed += bad + (!ok && !bad)
  }
  /^[0-9]+\/[0-9]+ Testing: / { add(); open = 1; cases = good = bad = ok = 0 }
  /^\[doctest\] test cases:/ {
    cases = 1
    if (match($0, /[0-9]+ passed/)) good = substr($0, RSTART) + 0
    if (match($0, /[0-9]+ failed/)) bad = substr($0, RSTART) + 0
  }
  /^Test Passed/ { ok = 1 }
  END {
    add()
    if (!failed && (status || !passed)) failed = 1
    printf "%d passed, %d failed\n", passed, failed
    exit failed > 0
  }' "$log"
