#!/bin/sh
# sh tests/random_settings.sh [N] [SEED]: trains N (default 10000) random combinations of registered names and numbers
# for two steps; each must train or be refused with a message (tests/examples/random_settings.cpp).  The last line
# counts the outcomes; the exit code is 1 if a draw ended otherwise.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
cmake -S . -B "$build" -DORRERY_TESTS=ON > /dev/null
cmake --build "$build" --parallel "$(nproc)" --target random_settings > /dev/null
exec "$build/random_settings" "${1:-10000}" "${2:-1}"
