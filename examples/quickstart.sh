#!/bin/sh
# sh examples/quickstart.sh [--key=value...]: installs what is missing, builds the program orrery, trains a small GPT on
# Shakespeare, prints a sample, and writes a report page, whose path is the last line.  Further arguments go to
# `orrery train`, for instance --steps=50.  OPTIONS=-DORRERY_NATIVE=OFF in the environment goes to cmake.
set -eu
cd "$(dirname "$0")/.."
. examples/install.sh

echo "1. the system's packages"
install_missing $library_packages

echo "2. building the program (a few minutes the first time)"
build=build
options="-DORRERY_TESTS=OFF ${OPTIONS:-}"
if command -v nvcc > /dev/null && command -v nvidia-smi > /dev/null && nvidia-smi > /dev/null 2>&1; then
  build=build/cuda
  options="$options -DORRERY_CUDA=ON"
fi
# An already configured folder keeps its settings, such as the tests that tests/run.sh enabled.
[ -f "$build/CMakeCache.txt" ] && options=
mkdir -p "$build"
# shellcheck disable=SC2086
cmake -S . -B "$build" $options > "$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }
cmake --build "$build" --target orrery --parallel "$(nproc)"

echo "3. training"
# A folder with a run is never overwritten: each call uses the next free name, unless --out is given.
out=
previous=
for argument; do
  case $argument in --out=*) out=${argument#--out=} ;; esac
  [ "$previous" != --out ] || out=$argument
  previous=$argument
done
number=1
while [ -z "$out" ]; do
  out=runs/quickstart-$number
  [ ! -e "$out" ] || { out= && number=$((number + 1)); }
done
# 3: the run is complete, but its model is worse than a uniform guess.
"$build/orrery" train --config=examples/configs/quickstart.toml --out="$out" "$@" || [ $? = 3 ]

echo
echo "4. what it writes"
"$build/orrery" generate "$out" --tokens=400 --seed=1

echo
echo "The run is in $out.  Another prompt: $build/orrery generate $out --prompt=KING"
echo "Everything else: $build/orrery --help"

echo
echo "5. its report, a page to open in a browser"
"$build/orrery" report "$out"
