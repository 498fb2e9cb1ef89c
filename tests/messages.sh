#!/bin/sh
# sh tests/messages.sh [BUILD FOLDER [TEST PROGRAM...]]: runs the test programs in the folder (default: build) and
# writes their error messages to tests/golden/messages.txt; git diff shows the changes to a reviewer.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
[ $# -lt 2 ] && set -- "$build" engine_tests nn_tests models_tests examples_tests fault_injection_tests cuda_tests
shift
for program in "$@"; do
  [ -x "$build/$program" ] || { echo "$program is not built: its messages stay as they are" && continue; }
  ORRERY_UPDATE_MESSAGES=yes "$build/$program" > "$build/messages.log" 2>&1 || grep -A 3 ERROR: "$build/messages.log"
done
git diff --stat tests/golden/messages.txt
