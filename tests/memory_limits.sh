#!/bin/sh
# sh tests/memory_limits.sh N [BUILD]: trains N random models, each in a memory cgroup of 100 to 300 MB without swap.  A
# run must train to its end, or be refused with the memory it needs and the free memory; any other outcome fails, above
# all an end by SIGKILL.  SEED=2 in the environment draws other models.  CHECK=yes repeats each refused run without a
# limit and lists those whose peak would have fitted.  FIRST=17 begins with draw 17.
# The last line is "N passed, N failed"; if no cgroup can be made, the line before reports that, and both are 0.
set -u
count=${1:?usage: sh tests/memory_limits.sh N [BUILD]}
cd "$(dirname "$0")/.." || exit 1
exec python3 tests/memory_limits/memory_limits.py "$count" "${2:-build}"
