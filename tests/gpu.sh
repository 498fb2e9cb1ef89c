#!/bin/sh
# sh tests/gpu.sh [--plan] [--emulated] [FOLDER]: runs every check that needs a GPU, on a machine that has one; needs
# no network.
#
# Builds with CUDA for the GPU of the machine, runs the parity tests against the CPU, compute-sanitizer, a training run
# on both devices, gradcheck in f64, and the benchmarks, whose results are listed next to the times that
# tests/gpu_static/model.py expects of this GPU; writes one text report, build/card/report.txt.  Every stage has a
# budget of seconds, below nine minutes in all.  Skipped stages are listed with the reason.  A failure does not stop
# later stages, except those that need a program that was not built.  Build files stay, so a second call continues
# after the first one.
#   --emulated  on a machine without a GPU: the stages that the emulated GPU (tests/support) can run, in build, without
#               the limit of nine minutes; its times are meaningless, so the report lists only expected times
#   --plan      prints the stages, their budgets and those that would be skipped; runs none
#   FOLDER      libraries that the machine lacks, made on a Debian of the same release with a network:
#              mkdir packages && cd packages && apt-get download libopenblas-pthread-dev libopenblas0-pthread \
#                libgfortran5 libquadmath0 libtbb-dev libtbb12 libtbbmalloc2 libtbbbind-2-5 libhwloc15 \
#                libssl-dev libssl3 nlohmann-json3-dev libtomlplusplus-dev libcli11-dev libpcre2-dev \
#                libpcre2-8-0 libsentencepiece-dev libsentencepiece0 libprotobuf-lite32 zlib1g-dev zlib1g libstb-dev \
#                doctest-dev
#              for file in *.deb; do dpkg -x $file ../libraries; done
#            and ../libraries is the FOLDER.
#   BUILD=build/card REPORT=... PYTHON=python3 BUDGET=500 STAGES='build training' in the environment change these.
# The exit code is 0 if no stage failed, 1 if one did or none ran, 2 without a GPU, nvcc or cmake.
set -u

plan='' emulated='' stage_of_child=
while [ $# -gt 0 ]; do
  case $1 in
    --plan) plan=yes ;;
    --emulated) emulated=--emulated ;;
    --stage) stage_of_child=$2; shift ;;
    *) break ;;
  esac
  shift
done
folder=
if [ $# -gt 0 ]; then
  folder=$(cd "$1" 2> /dev/null && pwd) || { echo "gpu.sh: there is no folder $1"; exit 2; }
fi
cd "$(dirname "$0")/.." || exit 2
if [ -n "$emulated" ]; then
  export BUILD="${BUILD:-build}"
  program=$BUILD/orrery_on_emulation report=${REPORT:-$BUILD/gpu_report.txt} budget_of_all=${BUDGET:-10000}
else
  export BUILD="${BUILD:-build/card}"
  program=$BUILD/orrery report=${REPORT:-$BUILD/report.txt} budget_of_all=${BUDGET:-500}
fi
export PYTHON="${PYTHON:-python3}"
counts=$BUILD/counts.json
text=examples/data/tinyshakespeare.txt

# Kernel tests that compute-sanitizer watches: few launches each, all kinds of kernels.
watched='*a sort on a GPU*,*rows are added to the rows*,*max on a GPU*,*in many launches*,*batches*one side shared*'
watched="$watched,*several outputs side by side*,*values next to C*,*all masks and all options*"
watched="$watched,*tiles that are hidden*,*preloaded rows are in registers*,*shared memory beyond*"
watched="$watched,*products of warp groups*"

if [ -n "$folder" ]; then
  libraries=$(find "$folder/usr/lib" -maxdepth 1 -type d -name '*-linux-gnu' | head -n 1)
  libraries=${libraries:-$folder/usr/lib}
  export CMAKE_PREFIX_PATH="$folder/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}"
  export CPATH="$folder/usr/include/${libraries##*/}${CPATH:+:$CPATH}"  # OpenSSL keeps some headers there
  export LIBRARY_PATH="$libraries:$libraries/openblas-pthread${LIBRARY_PATH:+:$LIBRARY_PATH}"
  export LD_LIBRARY_PATH="$libraries:$libraries/openblas-pthread${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

# --- stages -----------------------------------------------------------------------------------------------------------

stages='machine build build_tests parity memcheck racecheck initcheck training repeat gradcheck'
stages=${STAGES:-$stages counts bench bench_bf16 bench_train bench_compiled expected}
seconds_for() {
  case $emulated$1 in
    *machine | *expected) echo 10 ;;
    --emulatedbuild) echo 3600 ;;
    --emulatedbuild_tests | --emulatedparity) echo 1800 ;;
    --emulated*) echo 900 ;;
    build) echo 300 ;;
    build_tests | parity | counts) echo 120 ;;
    racecheck) echo 60 ;;
    memcheck | initcheck | gradcheck) echo 40 ;;
    training | repeat) echo 40 ;;
    bench | bench_train | bench_compiled) echo 90 ;;
    bench_bf16) echo 60 ;;
  esac
}
# built_by STAGE: the stage that builds the program of this stage.
built_by() {
  case $1 in
    parity | memcheck | racecheck | initcheck) echo build_tests ;;
    training | repeat | gradcheck | bench*) echo build ;;
  esac
}
program_of() { [ "$(built_by "$1")" = build_tests ] && echo "$BUILD/cuda_tests" || echo "$program"; }

has_torch() { "$PYTHON" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2> /dev/null; }

has_python() { "$PYTHON" -c '' 2> /dev/null; }
# Prints the disassemblers that are missing.
missing_tools() { "$PYTHON" -c 'import sys; sys.path[0] = "tests/gpu_static"; import count; count.find_tools()' 2>&1; }

# Prints why a stage cannot run; nothing if it can.
reason_against() {
  case $emulated$1 in
    --emulatedmemcheck | --emulatedracecheck | --emulatedinitcheck)
      echo "compute-sanitizer needs a GPU; the emulation finds the same errors, and the parity tests verify that" ;;
    --emulatedbench*) echo "the emulation's times say nothing about a GPU; the stage expected lists expected times" ;;
    expected) echo "the stages bench list expected times next to measured ones" ;;
    *expected) has_python || echo "there is no $PYTHON" ;;
    *counts)
      if ! has_python; then
        echo "there is no $PYTHON"
      elif ! command -v nvcc > /dev/null; then
        echo "there is no nvcc"
      else
        missing_tools
      fi ;;
    memcheck | racecheck | initcheck)
      command -v compute-sanitizer > /dev/null || echo "compute-sanitizer is not installed" ;;
    *gradcheck)
      [ ! -x "$program" ] || "$program" gradcheck --help | grep -q -e --device ||
        echo "orrery gradcheck has no --device in this version" ;;
    bench_compiled) has_torch || echo "$PYTHON has no PyTorch that sees a GPU" ;;
  esac
}
stage_machine() {
  [ -n "$emulated" ] || nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv
  ! command -v nvcc > /dev/null || nvcc --version | tail -n 2
  cmake --version | head -n 1
  echo "$(nproc) cores; $(uname -sr)"
}
# -k of make: builds all files that do not depend on a failed one.
make_target() { cmake --build "$BUILD" --parallel "$(nproc)" --target "$1" -- -k; }
stage_build() {
  if [ -n "$emulated" ]; then
    cmake -S . -B "$BUILD" -DORRERY_TESTS=ON -DORRERY_EXAMPLES=ON
  else
    code=$architecture
    [ "$code" != 90 ] || code=90a  # with the instructions of warp groups
    cmake -S . -B "$BUILD" -DORRERY_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$code" -DORRERY_TESTS=ON -DORRERY_EXAMPLES=ON
  fi && make_target "${program##*/}"
}
stage_build_tests() { make_target cuda_tests; }
stage_parity() {
  ctest --test-dir "$BUILD" -L '^(cuda|gpu)$' --output-on-failure --timeout $(($(seconds_for parity) - 10))
}
sanitize() {
  compute-sanitizer --tool "$1" --error-exitcode 9 "$BUILD/cuda_tests" "--test-case=$2"
}
stage_memcheck() { sanitize memcheck "$watched"; }
# Without the kernel with all options, which takes more than 100 s under this tool.
stage_racecheck() { sanitize racecheck "$(echo "$watched" | sed 's/,\*all masks and all options\*//')"; }
stage_initcheck() { sanitize initcheck "$watched"; }

# train DEVICE FOLDER OPTIONS...: writes the losses of a few steps and of the validation split, one per line.  An
# emulated GPU is some thousand times slower than a GPU, so its model and its text are smaller.
train() {
  device=$1 out=$2 data=$text
  shift 2
  if [ -n "$emulated" ]; then
    data=$BUILD/text.txt
    head -c 10000 "$text" > "$data"
    set -- --layers=2 --width=64 --heads=2 --context=32 --batch_size=4 "$@"
  fi
  rm -rf "$out"
  "$program" train --model=gpt-char-small "--data=$data" --steps=10 --warmup_steps=2 --evaluate_every=0 \
    --checkpoint_every=0 "--device=$device" "--out=$out" "$@" > "$out.log" 2>&1 ||
    [ $? = 3 ] || { cat "$out.log"; return 1; }  # 3: ten steps were too few to learn anything
  sed -n 's/.*"\(validation_\)\{0,1\}loss":\([-+0-9.eE]*\).*/\2/p' "$out/metrics.jsonl" > "$out.losses"
  [ -s "$out.losses" ] || { echo "no losses in $out/metrics.jsonl"; return 1; }
}
stage_training() {
  train cpu "$BUILD/train_cpu" && train cuda "$BUILD/train_cuda" || return 1
  paste "$BUILD/train_cpu.losses" "$BUILD/train_cuda.losses" | awk '
    { difference = $1 > $2 ? $1 - $2 : $2 - $1
      if (NF != 2 || !(difference <= 1e-5 * $1)) bad = 1
      printf "  cpu %s  cuda %s  difference %.2g\n", $1, $2, difference }
    END { print NR " losses, bound 1e-5 of each"; exit bad || NR == 0 }'
}
same_run() {  # same_run FOLDER FOLDER: compares losses and weights bit by bit
  cmp "$1.losses" "$2.losses" || return 1
  for file in "$1"/step_*/weights.safetensors; do cmp "$file" "$2/${file#"$1/"}" || return 1; done
}
stage_repeat() {
  train cuda "$BUILD/train_first" && train cuda "$BUILD/train_second" || return 1
  same_run "$BUILD/train_first" "$BUILD/train_second" || return 1
  echo "two runs: bit-identical losses and weights"
  "$program" train --help=all | grep -q -e --cuda_graph || { echo "this version has no --cuda_graph"; return 0; }
  train cuda "$BUILD/train_graph" --cuda_graph=yes && same_run "$BUILD/train_first" "$BUILD/train_graph" || return 1
  echo "a run with a CUDA graph: bit-identical, too"
}
stage_gradcheck() { "$program" gradcheck --all --device=cuda; }

# expectations OPTIONS...: prints the expected time of each benchmark, on this GPU or on all known GPUs
expectations() {
  [ -n "$emulated" ] || set -- --card "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)" "$@"
  "$PYTHON" tests/gpu_static/benchmarks.py --counts "$counts" "$@"
}
# benchmark SECONDS WORDS...: times orrery, also PyTorch if it is installed, and prints expected times; WORDS: arguments
# of compare.py
benchmark() {
  time=$1
  shift
  if has_torch; then
    "$PYTHON" examples/benchmarks/compare.py --orrery "$program" --python "$PYTHON" --device cuda --rounds 1 \
      --seconds "$time" --json "$BUILD/benchmarks.json" "$@" || return 1
    expectations "$BUILD/benchmarks.json"
    return
  fi
  echo "$PYTHON has no PyTorch that sees a GPU: times orrery only"
  precision=highest words=
  for word; do
    case $word in
      --bf16) precision=medium ;;
      --no-compile) ;;
      *) words="$words $word" ;;
    esac
  done
  # shellcheck disable=SC2086
  "$program" bench $words --device cuda --seconds "$time" --precision "$precision" --json > "$BUILD/benchmarks.json"
  status=$?  # a failed case ends it; the cases before count
  cat "$BUILD/benchmarks.json"
  ! has_python || expectations "$BUILD/benchmarks.json" || return 1
  return "$status"
}
stage_bench() { benchmark 0.3 gemm rows attention --no-compile; }
stage_bench_bf16() { benchmark 0.3 gemm attention --bf16 --no-compile; }
stage_bench_train() { benchmark 1 train --only gpt --bf16 --no-compile; }
stage_bench_compiled() { benchmark 0.3 attention --only attention/relu/L4096; }
# Counts the kernels' instructions for the GPUs with expected times; keeps the counts if no source is newer.
stage_counts() {
  newer=$(find cuda engine nn tests/gpu_static -newer "$counts" -name '*.[chp]*' 2> /dev/null | head -n 1)
  if [ -s "$counts" ] && [ -z "$newer" ]; then
    echo "$counts is newer than all sources"
    return
  fi
  [ -n "$emulated" ] && of='80 90' || of=$([ "$architecture" -ge 90 ] && echo 90 || echo 80)
  # shellcheck disable=SC2086
  "$PYTHON" tests/gpu_static/count.py --build . --arch $of --step --json > "$counts.part" && mv "$counts.part" "$counts"
}
stage_expected() { expectations; }

if [ -n "$stage_of_child" ]; then
  "stage_$stage_of_child"
  exit
fi

# --- devices and tools of this machine --------------------------------------------------------------------------------

if [ -z "$emulated" ]; then
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -d '. ')
  case $capability in
    '' | *[!0-9]*)
      echo "gpu.sh: no GPU here (nvidia-smi names none); to use the emulated one: sh tests/gpu.sh --emulated"
      exit 2 ;;
  esac
  if [ "$capability" -lt 80 ]; then
    echo "gpu.sh: this GPU has compute capability $capability; the kernels need 80 (8.0) or later"
    exit 2
  fi
  here="card of compute capability $capability" tools='nvcc cmake timeout'
  export architecture="$capability"
else
  here="the emulated card" tools='cmake timeout'
fi
for tool in $tools; do
  command -v "$tool" > /dev/null || { echo "gpu.sh: $tool is missing, and without it nothing can be built"; exit 2; }
done

if [ -n "$plan" ]; then
  echo "$here; libraries from ${folder:-the system}"
  echo "$budget_of_all s in all; report: $report"
  for stage in $stages; do
    against=$(reason_against "$stage")
    printf '%-15s %4s s%s\n' "$stage" "$(seconds_for "$stage")" "${against:+  left out: $against}"
  done
  exit 0
fi

# --- run --------------------------------------------------------------------------------------------------------------

mkdir -p "$BUILD" "$(dirname "$report")"
log=$BUILD/stage.log
: > "$report"
say() { echo "$1" | tee -a "$report"; }
started=$(date +%s)
passed=0 failed=0 skipped=0 not_built=

skip() {
  say "--- $1: left out: $2"
  skipped=$((skipped + 1))
}
run_stage() {
  against=$(reason_against "$1")
  left=$((started + budget_of_all - $(date +%s)))
  budget=$(seconds_for "$1")
  [ "$budget" -le "$left" ] || budget=$left
  if [ -n "$against" ]; then skip "$1" "$against"; return; fi
  builder=$(built_by "$1")
  case " $not_built " in
    *" ${builder:-nothing} "*) skip "$1" "the stage $builder has not built $(program_of "$1")"; return ;;
  esac
  if [ -n "$builder" ] && [ ! -x "$(program_of "$1")" ]; then
    skip "$1" "there is no $(program_of "$1"), which the stage $builder makes"
    return
  fi
  if [ "$left" -lt 10 ]; then
    skip "$1" "the time of all stages is used up"
    not_built="$not_built $1"
    return
  fi
  began=$(date +%s)
  # shellcheck disable=SC2086
  timeout -k 5 "$budget" sh tests/gpu.sh $emulated --stage "$1" ${folder:+"$folder"} > "$log" 2>&1
  status=$?
  took=$(($(date +%s) - began))
  case $1:$status in
    *:0) outcome=ok passed=$((passed + 1)) ;;
    *check:124 | bench*:124 | counts:124)
      outcome="cut off after $budget s, as far as it came" skipped=$((skipped + 1)) ;;
    *:124) outcome="FAILED: not done within $budget s" failed=$((failed + 1)) ;;
    *) outcome="FAILED ($status)" failed=$((failed + 1)) ;;
  esac
  case $1:$status in
    build:0 | build_tests:0) ;;
    build:* | build_tests:*) not_built="$not_built $1" ;;
  esac
  say "--- $1: $outcome, $took s"
  tail -n 200 "$log" >> "$report"
  [ "$status" = 0 ] || tail -n 20 "$log"
}
for stage in $stages; do run_stage "$stage"; done
say "$passed passed, $failed failed, $skipped left out, $(($(date +%s) - started)) s; report: $report"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
