#!/bin/sh
# sh tests/run.sh [CTEST OPTIONS]: installs what is missing, builds in build/, runs every test.
# The last line counts test cases and example runs: "N passed, N failed".
# Another build: BUILD=build/address OPTIONS=-DORRERY_SANITIZE=address,undefined TARGETS=nn_tests sh tests/run.sh -R
# nn_tests
set -u
cd "$(dirname "$0")/.." || exit 1
. examples/install.sh

# Whatever fails before the tests run still ends with the line that scripts look for.
give_up() {
  echo "$1"
  echo "0 passed, 1 failed"
  exit 1
}

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

ctest --test-dir "$build" --output-on-failure "$@"
status=$?

# A doctest program counts its cases, an example counts as one; a program that failed without a failed case (a crash,
# a sanitizer's report, too much time) counts as one failure more.
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
  }' "$build/Testing/Temporary/LastTest.log"
