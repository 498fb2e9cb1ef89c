#!/bin/sh
# sh tests/random_settings.sh [N] [SEED]: N (default 10000) combinations of names and numbers, drawn from all that is
# registered, train two steps or are refused in a sentence; see tests/examples/random_settings.cpp.  The last line
# counts; the exit code is 1 if a draw ended otherwise.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
cmake -S . -B "$build" -DORRERY_TESTS=ON > /dev/null
cmake --build "$build" --parallel "$(nproc)" --target random_settings > /dev/null
exec "$build/random_settings" "${1:-10000}" "${2:-1}"
