#!/bin/sh
# sh tests/mutation.sh [--kind KIND] [--sample N] [--seed N] [--file PATTERN] [--jobs N] [--list]: mutation testing.
# Of the backward passes that are written by hand (--kind gradients, the default), each term has its sign flipped, and
# is dropped; each call that adds to a gradient is left out.  Of the error paths (--kind errors), each condition of a
# check becomes true, and so does each part of a conjunction; each setting, value and allowed value is left out of the
# message.  --sample chooses N mutants by --seed, the same ones when other files change.
# All mutants of a file are compiled at once, below build/mutation or build/mutation_of_errors, and an environment
# variable chooses one for a run of the tests that reach it.  Fails if a mutant survives that
# tests/mutation/survivors.txt does not explain, or if less than 95 % are killed.
# The last line reads "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
. examples/install.sh

give_up() {
  echo "$1"
  echo "0 passed, 1 failed"
  exit 1
}

export PYTHONDONTWRITEBYTECODE=1
case " $* " in *" --list "*) exec python3 tests/mutation/mutation.py "$@" ;; esac
# shellcheck disable=SC2154
install_missing $library_packages $test_packages || give_up "the packages could not be installed"
build=${BUILD:-build}
mkdir -p "$build"
case " $* " in
  *" --kind errors "* | *" --kind=errors "*) programs=$build/mutation_of_errors/build ;;  # builds all by itself
  *)
    programs=$build/mutation
    if ! cmake -S . -B "$build" > "$build/configure.log" 2>&1; then
      cat "$build/configure.log"
      give_up "cmake failed"
    fi
    cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target engine_tests nn_tests || give_up "the build failed"
    ;;
esac
python3 tests/mutation/mutation.py --build "$build" "$@"
status=$?
[ "$status" -le 1 ] && [ -e "$programs/nn_tests" ] || give_up "the mutants could not be run"
exit "$status"
