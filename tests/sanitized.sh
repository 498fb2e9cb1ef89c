#!/bin/sh
# sh tests/sanitized.sh address|thread [TEST PROGRAM...]: builds these test programs, or all, with sanitizers, in
# build/address or build/thread, and runs them.  `address` is AddressSanitizer and UndefinedBehaviorSanitizer in a build
# by clang, whose warnings differ from those of g++, of the program orrery too; `thread` is ThreadSanitizer in a build
# by g++.  Both leave out the emulated kernels, whose threads run one after another.  All programs take hours.
# The last line is "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
kind=${1:?usage: sh tests/sanitized.sh address|thread [TEST PROGRAM...]}
shift
# All checks of undefined behaviour except null pointers, which AddressSanitizer finds as well, alignment, virtual
# tables and sizes of objects: these four take a third of the time.
undefined=bool,bounds,builtin,enum,float-cast-overflow,integer-divide-by-zero,nonnull-attribute,pointer-overflow,return
undefined=$undefined,returns-nonnull-attribute,shift,signed-integer-overflow,unreachable,vla-bound
case $kind in
  address)
    compiler=clang++ sanitizers=address,$undefined more=orrery
    all="engine_tests nn_tests models_tests examples_tests fuzz_tests"
    ;;
  thread) compiler=g++ sanitizers=thread more= all="engine_tests nn_tests" ;;
  *) echo "unknown sanitizer $kind; use address or thread" && exit 1 ;;
esac
[ $# -gt 0 ] || set -- $all
OPTIONS="${OPTIONS:-} -DCMAKE_CXX_COMPILER=$compiler -DORRERY_EMULATE_CUDA=OFF -DORRERY_SANITIZE=$sanitizers" \
  TARGETS="$more $*" BUILD=build/$kind sh tests/run.sh -R "^($(echo "$*" | tr ' ' '|'))\$" --timeout 7200
