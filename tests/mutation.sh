#!/bin/sh
# sh tests/mutation.sh [--sample N] [--file PATTERN] [--jobs N] [--list]: mutation testing of the hand-written backward
# passes.  Mutants negate or drop one term, or drop one call that adds to a gradient.  All mutants of a file are
# compiled at once, below build/mutation, and an environment variable selects one for a run of the tests that reach it.
# Fails if a mutant survives that tests/mutation/survivors.txt does not explain, or if less than 95 % are killed.  The
# last line is "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
. examples/install.sh

give_up() {
  echo "$1"
  echo "0 passed, 1 failed"
  exit 1
}

case " $* " in *" --list "*) exec python3 tests/mutation/mutation.py "$@" ;; esac
# shellcheck disable=SC2154
install_missing $library_packages $test_packages || give_up "the packages could not be installed"
build=${BUILD:-build}
mkdir -p "$build"
if ! cmake -S . -B "$build" > "$build/configure.log" 2>&1; then
  cat "$build/configure.log"
  give_up "cmake failed"
fi
cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target engine_tests nn_tests || give_up "the build failed"
PYTHONDONTWRITEBYTECODE=1 python3 tests/mutation/mutation.py --build "$build" "$@"
status=$?
[ "$status" -le 1 ] && [ -e "$build/mutation/nn_tests" ] || give_up "the mutants could not be run"
exit "$status"
