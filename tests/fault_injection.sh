#!/bin/sh
# sh tests/fault_injection.sh [COMMAND [FROM]]: the n-th allocation, write, fsync, rename, open, ... of train, resume,
# generate, list and try fails, for every n (the tests take a sample), then every restricted environment.  Takes hours.
# `ranks`: train and resume on two ranks, by each MPI; the calls of one of them fail.
# ORRERY_FAILURES=N in the environment takes N of each kind of call and command, instead of every n.
# FROM: the first allocation that is tried; about 5,400 come before main and are equal in every command.
# The last line is "N passed, N failed" and counts cases; the lines above it have the numbers of n tried.
set -u
cd "$(dirname "$0")/.." || exit 1
[ $# -lt 1 ] || export ORRERY_FAILURES_OF="$1"
[ $# -lt 2 ] || export ORRERY_FAILURES_FROM="$2"
export ORRERY_FAILURES="${ORRERY_FAILURES:-all}"
TARGETS="orrery fault_injection_tests" sh tests/run.sh -R '^fault_injection_tests$' --timeout 86400 -V
