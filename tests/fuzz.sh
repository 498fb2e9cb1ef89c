#!/bin/sh
# sh tests/fuzz.sh SECONDS [FORMAT...]: fuzzes every format that the program reads, or these, for SECONDS each, under
# AddressSanitizer and UndefinedBehaviorSanitizer, with clang's libFuzzer if clang is installed, else our own driver.
# INPUTS=10000000 ends a format after that many inputs (SECONDS may be 0 then).  SANITIZERS= (empty) uses the build of
# the tests and our own driver, which is several times as fast.  Inputs that fail are kept in build/fuzz/found.  The
# last line is "N passed, N failed" and counts formats.
set -u
cd "$(dirname "$0")/.." || exit 1
. examples/install.sh
[ $# -ge 1 ] || { echo "sh tests/fuzz.sh SECONDS [FORMAT...]"; exit 1; }
seconds=$1
shift
install_missing $library_packages $test_packages || exit 1

# Finds a clang that has libFuzzer by compiling a one-line program.
libfuzzer=
sanitizers=${SANITIZERS-address,undefined}
[ -n "$sanitizers" ] || FUZZ_CXX=none
for compiler in ${FUZZ_CXX:-clang++ clang++-18 clang++-16 clang++-14}; do
  [ -z "$libfuzzer" ] || break
  command -v "$compiler" > /dev/null || continue
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    "$compiler" -x c++ -fsanitize=fuzzer,address,undefined - -o /dev/null 2> /dev/null && libfuzzer=$compiler
done
options="-DORRERY_TESTS=ON -DORRERY_EXAMPLES=OFF -DORRERY_SANITIZE=$sanitizers"
build=${BUILD:-build/address}  # the tests' build with the same sanitizers, which .ci/run has already
[ -n "$sanitizers" ] || { options=-DORRERY_TESTS=ON build=${BUILD:-build}; }
if [ -n "$libfuzzer" ]; then
  build=build/libfuzzer
  options="$options -DORRERY_EMULATE_CUDA=OFF -DORRERY_LIBFUZZER=ON -DCMAKE_CXX_COMPILER=$libfuzzer"
fi
mkdir -p "$build"
# shellcheck disable=SC2086
cmake -S . -B "$build" $options > "$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }
cmake --build "$build" --parallel "$(nproc)" --target orrery_fuzz || { echo "0 passed, 1 failed"; exit 1; }

found=build/fuzz/found
mkdir -p "$found"
# A pool that keeps memory is not a leak; an allocation that is too large must return null.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:${ASAN_OPTIONS:-}
[ $# -gt 0 ] || set -- $(ls tests/fuzz/corpus)
passed=0 failed=0
for format; do
  corpus=tests/fuzz/corpus/$format
  if [ -n "$libfuzzer" ]; then
    grown=build/fuzz/corpus/$format  # inputs found by libFuzzer: a separate corpus
    mkdir -p "$grown"
    ORRERY_FUZZ_FORMAT=$format "$build/orrery_fuzz" -max_total_time="$seconds" -runs="${INPUTS:--1}" -max_len=65536 \
      -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 -verbosity=0 -artifact_prefix="$found/${format}_" \
      "$grown" "$corpus"
  else
    "$build/orrery_fuzz" "$format" --seconds="$seconds" --inputs="${INPUTS:-0}" --seed="${SEED:-$(date +%s)}" \
      --corpus="$corpus" --keep="$found"
  fi
  if [ $? = 0 ]; then
    passed=$((passed + 1))
  else
    echo "$format FAILED; the input is in $found"
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
