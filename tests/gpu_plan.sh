#!/bin/sh
# sh tests/gpu_plan.sh: tests tests/gpu.sh on a machine without a GPU, with fakes of the programs that it calls.
set -u
cd "$(dirname "$0")/.." || exit 1
fake=$(mktemp -d)
trap 'rm -rf "$fake"' EXIT
problems=0
expect() {  # expect WHAT CODE PATTERN...: checks the exit code and output of the last run
  what=$1 code=$2
  shift 2
  [ "$status" = "$code" ] || { echo "$what: ended with $status, not $code"; problems=1; }
  for pattern; do
    grep -q -e "$pattern" "$fake/out" || { echo "$what: no '$pattern'"; problems=1; }
  done
  [ "$problems" = 0 ] || cat "$fake/out"
}
run() {
  PATH="$fake:$PATH" BUILD="$fake/build" PYTHON="${PYTHON:-$fake/python}" sh tests/gpu.sh "$@" > "$fake/out" 2>&1
  status=$?
}
pretend() {  # pretend NAME: makes a program from the script on standard input
  { echo '#!/bin/sh'; cat; } > "$fake/$1"
  chmod +x "$fake/$1"
}

echo 'exit 9' | pretend nvidia-smi
run
expect "without a GPU" 2 "no GPU here" "--emulated"
echo 'echo 7.5' | pretend nvidia-smi
run
expect "an old card" 2 "compute capability 75"
echo 'echo 9.0' | pretend nvidia-smi
for tool in nvcc cmake ctest compute-sanitizer; do echo 'echo "$0 $*"' | pretend $tool; done
echo 'exit 1' | pretend python
run --plan
expect "the plan" 0 "compute capability 90" "^build " "^memcheck .* s$" "^bench_compiled .*left out: .*PyTorch"
run --plan "$fake/nowhere"
expect "no folder" 2 "there is no folder"

mkdir "$fake/build"
echo | pretend build/cuda_tests
pretend build/orrery <<'PROGRAM'
case "$1 $*" in
  *--help*) ;;
  train*)
    for word; do case $word in --out=*) out=${word#--out=} ;; --device=*) device=${word#--device=} ;; esac; done
    mkdir -p "$out/step_1" && echo weights > "$out/step_1/weights.safetensors"
    [ "$device" = cpu ] && loss=4.00001 || loss=${LOSS:-4.00002}
    echo "{\"step\":1,\"loss\":$loss,\"rate\":1}" > "$out/metrics.jsonl" ;;
  bench*)
    echo "bench $*" >&2
    echo '{"case":"gemm/2048x2048x2048","dtype":"f32-highest","ms":1.0,"rate":17179.9}'
    echo '{"case":"gemm/1x1x1","dtype":"bf16","ms":1.0,"rate":1}' ;;
esac
PROGRAM
cp "$fake/build/orrery" "$fake/build/orrery_on_emulation"
run
expect "a run" 0 "^--- machine: ok" "^--- build: ok" "^--- parity: ok" "^--- racecheck: ok" "^--- training: ok" \
  "^--- repeat: ok" "^--- gradcheck: left out: .*--device" "^--- counts: left out: there is no .*python" \
  "^12 passed, 0 failed, 4 left out"
expect_in_report() { grep -q -e "$1" "$fake/build/report.txt" || { echo "no '$1' in the report"; problems=1; }; }
expect_in_report "CMAKE_CUDA_ARCHITECTURES=90a"
expect_in_report "difference 1e-05"
expect_in_report "precision medium"
# The tests under compute-sanitizer must run on a GPU, not only in the emulation.
awk '/^#if defined\(EMULATE_CUDA\)/ { emulated = 1 } /^#endif/ { emulated = 0 } /^TEST_CASE\(/ { named = !emulated }
  named && match($0, /"[^"]*"/) { print substr($0, RSTART + 1, RLENGTH - 2); named = 0 }
  ' tests/cuda/*.cpp tests/cuda/*/*.cpp > "$fake/tests"
sed -n 's/.*compute-sanitizer --tool memcheck .*--test-case=//p' "$fake/build/report.txt" | tr , '\n' > "$fake/watched"
[ "$(wc -l < "$fake/watched")" -ge 8 ] || { echo "compute-sanitizer watches too little"; problems=1; }
while read -r pattern; do
  echo "$pattern" | sed 's/[*]/.*/g' > "$fake/pattern"
  grep -q -x -f "$fake/pattern" "$fake/tests" || { echo "no test for a GPU is named $pattern"; problems=1; }
done < "$fake/watched"
LOSS=4.1 run
expect "another loss" 1 "^--- training: FAILED" "1 failed"
BUDGET=5 run
expect "no time" 1 "left out: the time of all stages is used up"
# One of two programs is not built: the stages of the other still run.
echo 'case $* in *cuda_tests*) exit 3 ;; esac' | pretend cmake
run
expect "no tests" 1 "^--- build: ok" "^--- build_tests: FAILED (3)" "^--- training: ok" "^--- bench: ok" \
  "^--- parity: left out: the stage build_tests has not built .*/cuda_tests" "1 failed"
echo 'exit 3' | pretend cmake
run
expect "no build" 1 "^--- build: FAILED (3)" "^--- training: left out: the stage build has not built" \
  "^--- parity: left out: the stage build_tests has not built"

# Without a GPU.
echo 'exit 9' | pretend nvidia-smi
echo 'echo "$0 $*"' | pretend cmake
run --plan --emulated
expect "the emulated plan" 0 "the emulated card" "^memcheck .*left out: .*the emulation finds" \
  "^bench .*left out: .*times say nothing" "^training .* s$"
run --emulated
expect "an emulated run" 0 "^--- parity: ok" "^--- training: ok" "^--- repeat: ok" "^--- racecheck: left out" \
  "^--- bench_train: left out" "^--- expected: left out: there is no .*python" "^6 passed, 0 failed, 10 left out"
grep -q "target orrery_on_emulation" "$fake/build/gpu_report.txt" ||
  { echo "the emulated program is not built"; problems=1; }
LOSS=4.1 run --emulated
expect "another emulated loss" 1 "^--- training: FAILED" "^--- repeat: ok"
rm "$fake/build/orrery_on_emulation"
STAGES='training' run --emulated
expect "no program" 1 "^--- training: left out: there is no .*orrery_on_emulation, which the stage build makes"

# The table of two kernels, one of which spills.
command -v python3 > /dev/null || exit $problems

# Measured and expected times: of a GPU that the model knows, of another, and of all.
card() { echo "case \$* in *gpu=compute_cap*) echo 9.0 ;; *) echo '$1' ;; esac" | pretend nvidia-smi; }
card 'NVIDIA H200'
PYTHON=python3 STAGES='bench' run
expect "a known card" 0 "^--- bench: ok"
expect_in_report "H200 SXM ms"
expect_in_report "^gemm/2048x2048x2048 *f32 *1.0000 *>=0.2917 *3[.]43$"
expect_in_report "^gemm/1x1x1 *bf16 *1.0000 .*benchmarks.tsv does not have it"
card 'NVIDIA GeForce RTX 3090'
PYTHON=python3 STAGES='bench' run
expect "an unknown card" 0 "^--- bench: ok"
expect_in_report "does not know the card 'NVIDIA GeForce RTX 3090'.*it knows H100"
expect_in_report "^gemm/2048x2048x2048 *f32 *1.0000$"
PYTHON=python3 STAGES='expected' run --emulated
expect "expectations" 0 "^--- expected: ok"
grep -q "^rows/layer_norm/4096x1024/forward *f32 *- *>=" "$fake/build/gpu_report.txt" ||
  { echo "no expectation"; problems=1; }

cat > "$fake/log" <<'LOG'
ptxas info    : Compiling entry function '_ZN6orrery13matmul_kernelIfEEvPT_' for 'sm_90'
    0 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 32 bytes smem
ptxas info    : Compiling entry function 'map_kernel' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
LOG
python3 tests/kernel_table.py "$fake/log" > "$fake/out" 2>&1
status=$?
expect "a table" 1 " 128 *[?] *- - *- *24 *1 *sm_90 .*matmul" \
  " 30 *[?] *- - *- *0 *1 *sm_90 map_kernel" "2 kernels.* 1 spill"
grep -v matmul "$fake/log" > "$fake/less"
printf 'module\t%s\t4096\t8\t4\t6\t6\t9\t6\n' 1f > "$fake/shared"
printf 'echo "000000000000001f t map_kernel"\necho "                 U other"\n' | pretend nm
PATH="$fake:$PATH" python3 tests/kernel_table.py --shared="$fake/shared" "$fake/less" > "$fake/out" 2>&1
status=$?
expect "a table without spills" 0 " 30 *4096 *2.00 1.00 *1.50 *0 *1 *sm_90 map_kernel" \
  "1 kernels.* 4096 bytes, known of 1; 0 spill"
printf 'module\t%s\t102000\n' 1f > "$fake/shared"
PATH="$fake:$PATH" python3 tests/kernel_table.py --shared="$fake/shared" "$fake/less" > "$fake/out" 2>&1
status=$?
expect "too much shared memory" 1 "asks for 102000 bytes"
exit $problems
