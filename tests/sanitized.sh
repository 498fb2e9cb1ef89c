#!/bin/sh
# sh tests/sanitized.sh address|thread [TEST PROGRAM...]: builds these test programs, or all, with sanitizers, in
# build/address or build/thread, and runs them.  `address` is AddressSanitizer and UndefinedBehaviorSanitizer in a build
# by clang, which has another eye for warnings than g++, of the program orrery too; `thread` is ThreadSanitizer in a
# build by g++.  Without the emulated kernels: their threads are emulated one after another.  All of it is for a night.
# The last line reads "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
kind=${1:?usage: sh tests/sanitized.sh address|thread [TEST PROGRAM...]}
shift
# Of undefined behaviour all but null pointers, which AddressSanitizer sees as well, and alignment, virtual tables and
# sizes of objects: the four take a third of the time.
undefined=bool,bounds,builtin,enum,float-cast-overflow,integer-divide-by-zero,nonnull-attribute,pointer-overflow,return
undefined=$undefined,returns-nonnull-attribute,shift,signed-integer-overflow,unreachable,vla-bound
case $kind in
  address)
    compiler=clang++ sanitizers=address,$undefined more=orrery
    all="engine_tests nn_tests models_tests fuzz_tests"
    ;;
  thread) compiler=g++ sanitizers=thread more= all="engine_tests nn_tests" ;;
  *) echo "there are address and thread, not $kind" && exit 1 ;;
esac
[ $# -gt 0 ] || set -- $all
OPTIONS="${OPTIONS:-} -DCMAKE_CXX_COMPILER=$compiler -DORRERY_EMULATE_CUDA=OFF -DORRERY_SANITIZE=$sanitizers" \
  TARGETS="$more $*" BUILD=build/$kind sh tests/run.sh -R "^($(echo "$*" | tr ' ' '|'))\$" --timeout 1200
