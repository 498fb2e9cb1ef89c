#!/bin/sh
# sh tests/dropped_file.sh BUILD: a fresh activation file in a copy of the tree, and nothing else: the program lists it,
# checks its derivative and trains with it as feed-forward, as attention and as normalization.  The copy takes over the
# objects of BUILD, so that make has only the new file to compile.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

cp -a engine nn models cuda examples CMakeLists.txt README.md "$copy"
cat > "$copy/nn/activations/dropped.cpp" << 'END'
// x / sqrt(1 + x^2), whose slope is (1 + x^2)^(-3/2).
#include "nn/formulas/kernels.h"
namespace {
struct Dropped {
  static inline const orrery::nn::ActivationInfo info{
      .name = "dropped", .formula = "x / sqrt(1 + x^2)", .source = "a test", .limits = {-1, 1}};
  template <class T> HOST_DEVICE T value(T x) const { return x / orrery::scalar::sqrt(1 + x * x); }
  template <class T> HOST_DEVICE T derivative(T x) const {
    const T square = 1 + x * x;
    return 1 / (square * orrery::scalar::sqrt(square));
  }
};
REGISTER_ACTIVATION(Dropped);
}  // namespace
END

setting() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
# or_show LOG COMMAND...: what the command prints goes to the log, and is shown if it fails.
or_show() {
  log=$copy/$1
  shift
  "$@" > "$log" 2>&1 || { cat "$log"; exit 1; }
}

or_show configure.log cmake -S "$copy" -B "$copy/build" -G "Unix Makefiles" -DORRERY_TESTS=OFF \
  -DCMAKE_BUILD_TYPE="$(setting CMAKE_BUILD_TYPE)" -DCMAKE_CXX_COMPILER="$(setting CMAKE_CXX_COMPILER)"
for target in orrery_core models_objects orrery_models program_objects orrery; do
  cd "$build/CMakeFiles/$target.dir"
  find . -name '*.o' -exec cp --parents {} "$copy/build/CMakeFiles/$target.dir" \;
  cd "$OLDPWD"
done
find "$copy/build" -name '*.o' -exec touch {} +
or_show build.log cmake --build "$copy/build" --parallel "$(nproc)" --target orrery
if [ "$(grep -c Building "$copy/build.log")" != 1 ]; then
  cat "$copy/build.log"
  echo "more was compiled than the new file alone"
  exit 1
fi

orrery=$copy/build/orrery
or_show list.log "$orrery" list activations
grep -A 3 '^  dropped' "$copy/list.log" || { echo "it is not listed"; exit 1; }
or_show gradcheck.log "$orrery" gradcheck dropped
tail -n 1 "$copy/gradcheck.log"
# Without a normalization that divides, small embeddings stay small: they and alpha are scaled, as DyT's authors do.
for role in feed_forward='dense(dropped)' attention='pointwise(dropped)' normalization='dynamic(dropped, alpha=4)'; do
  or_show train.log "$orrery" train --model=gpt-char-small --layers=2 --width=64 --embedding_scale=learned "--$role" \
    --steps=300 --data=examples/data/tinyshakespeare.txt --out="$copy/run"
  # Guessing costs ln 65 = 4.17; the letters' frequencies alone give 3.35.
  awk -v role="$role" '/^validation loss/ { loss = $3 }
    END { print role ": validation loss", loss; exit !(loss > 0 && loss < 3.2) }' "$copy/train.log"
  rm -r "$copy/run"
done
