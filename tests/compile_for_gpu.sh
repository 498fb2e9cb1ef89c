#!/bin/sh
# sh tests/compile_for_gpu.sh [--formulas|--kernels|--all]: nvcc on every file that it compiles in a CUDA build; a
# warning is an error.
# --formulas translates each file to PTX without optimization, so that every formula is checked within minutes.
# --kernels compiles products and attention to machine code for sm_90 and sm_90a and prints the table of registers,
# shared memory and spills (kernel_table.py), which fails if one of these spills.  The default is both.  --all compiles
# and lists every kernel: an hour on two cores.  ARCHITECTURES='80 120' selects other GPUs.
# The table takes shared memory from the emulated kernels: ORRERY_SHARED_MEMORY=FILE, written by
#   ORRERY_SHARED_MEMORY=FILE build/cuda_tests
# The last line reads "N passed, N failed" and counts files.
set -u
cd "$(dirname "$0")/.." || exit 1
give_up() {
  echo "$1"
  echo "0 passed, 1 failed"
  exit 1
}
# The files with the kernels of products and of attention: softmax, and one pointwise formula for all.
whole="cuda/matmul/matmul.cu cuda/attention/attention.cu nn/activations/relu.cpp"

architectures=${ARCHITECTURES:-90 90a}
# as KIND: the architectures as CMake lists them, virtual for PTX or real for machine code.
as() {
  list=
  for architecture in $architectures; do
    # --kernels checks the code of warp groups.
    [ "$1" = virtual ] && [ "$architecture" != "${architecture%a}" ] || list="$list;$architecture-$1"
  done
  echo "${list#;}"
}

# configure FOLDER OPTIONS...
configure() {
  folder=$1
  shift
  mkdir -p "$folder"
  set -- -DORRERY_CUDA=ON -DORRERY_WERROR=ON -DORRERY_TESTS=OFF -DORRERY_EXAMPLES=OFF "$@"
  cmake -S . -B "$folder" "$@" > "$folder/configure.log" 2>&1 || { cat "$folder/configure.log"; give_up failed; }
}
passed=0 failed=0
# compiled FOLDER TARGETS...: compiles all again, so that the log has each kernel; -O groups output by compiler call.
compiled() {
  folder=$1
  shift
  make -C "$folder" clean
  make -C "$folder" --no-print-directory -j "$(nproc)" -k -O "$@" > "$folder/compile.log" 2>&1 || failed=$((failed + 1))
  grep -v -E '^ptxas info|bytes stack frame|Building' "$folder/compile.log"
  # ptxas waits for each product of warp groups, or does not pass registers between groups.
  ! grep -E '\(C75(04|08|09|1[0-8])\)' "$folder/compile.log" || failed=$((failed + 1))
  passed=$((passed + $(grep -c 'Building CUDA' "$folder/compile.log")))
}

what=${1:-}
targets=orrery_core
if [ "$what" != --all ] && [ "$what" != --kernels ]; then
  configure build/gpu_ptx -DCMAKE_BUILD_TYPE=None -DCMAKE_CUDA_FLAGS=-Xcicc=-O0 \
    "-DCMAKE_CUDA_ARCHITECTURES=$(as virtual)"
  compiled build/gpu_ptx orrery_core
fi
if [ "$what" != --formulas ]; then
  if [ "$what" != --all ]; then
    targets=
    for file in $whole; do targets="$targets $file.o"; done
  fi
  configure build/gpu "-DCMAKE_CUDA_ARCHITECTURES=$(as real)" -DCMAKE_CUDA_FLAGS=-Xptxas=-v
  # shellcheck disable=SC2086
  compiled build/gpu $targets
  python3 tests/kernel_table.py ${ORRERY_SHARED_MEMORY:+--shared="$ORRERY_SHARED_MEMORY"} build/gpu/compile.log ||
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
