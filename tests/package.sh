#!/bin/sh
# sh tests/package.sh BUILD: tests the program of README.md and the files of examples/own_project/README.md, a project
# that uses orrery: installed, from the folder BUILD itself, and with the sources as a subfolder, which takes over
# objects of BUILD.  The subfolder's code must be as fast as the installed one for any build type of the parent.
# `orrery try` must then work with the installed headers.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
source=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# or_show LOG COMMAND...: writes the command's output to the log; prints it if the command fails.
or_show() {
  log=$work/$1
  shift
  "$@" > "$log" 2>&1 || { cat "$log"; exit 1; }
}
fail() {
  echo "$1"
  exit 1
}

# extract NAME PAGE: prints the file that the page has between these marks.
extract() { sed -n "/^<!-- $1 begin -->/,/^<!-- $1 end -->/p" "$2" | grep -v -e '^<!--' -e '^```'; }
page=examples/own_project/README.md
installed=$work/installed subfolder=$work/subfolder prefix=$work/prefix
mkdir "$installed" "$subfolder"
extract "project" $page > "$installed/CMakeLists.txt"
extract "training" README.md > "$installed/mine.cpp"
grep -q main "$installed/mine.cpp" || fail "README.md has lost its program"
cat >> "$installed/CMakeLists.txt" << 'END'
add_executable(steps steps.cpp)
target_link_libraries(steps PRIVATE orrery::core)
END
cat > "$installed/steps.cpp" << 'END'
// Gradient descent by sums and products of elements; prints its CPU time in ms.
#include <ctime>
#include <iostream>
#include "engine/ops/ops.h"

int main() {
  using orrery::Tensor;
  const Tensor x = Tensor::full({100'000}, 0.5), y = Tensor::full({100'000}, 2);
  Tensor w = Tensor::full({100'000}, 1);
  for (int i = 0; i < 100; ++i) {
    w = w.detach();
    w.set_requires_grad();
    const Tensor error = x * w - y;
    sum(error * error).backward();
    w = w - 0.1 * w.grad();
  }
  std::cout << std::clock() * 1000 / CLOCKS_PER_SEC << "\n";
}
END

# setting FOLDER NAME: prints a value of CMake's cache there.
setting() { sed -n "s/^$2:[A-Z]*=//p" "$1/CMakeCache.txt"; }
or_show install.log cmake --install "$build" --prefix "$prefix"
# The pages put BUILD into PATH, which find_package searches, too; a prefix has precedence.
PATH=$build:$PATH or_show configure.log cmake -S "$installed" -B "$installed/build" -DCMAKE_PREFIX_PATH="$prefix"
PATH=$build:$PATH or_show configure.log cmake -S "$installed" -B "$installed/by_path"
[ "$(setting "$installed/by_path" orrery_DIR)" = "$build" ] || fail "the package in PATH was not found"
case $(setting "$installed/build" orrery_DIR) in
  "$prefix"/*) ;;
  *) fail "the package of the prefix was not taken" ;;
esac
for folder in build by_path; do or_show build.log cmake --build "$installed/$folder"; done
"$installed/build/mine" > "$work/one"
"$installed/by_path/mine" > "$work/by_path"
cmp "$work/one" "$work/by_path" || fail "the installed library and the build folder give different results"
awk '{ loss = $4 } END { exit !(NR == 4 && loss < 0.01) }' "$work/one" ||
  fail "the program of README.md has not learned"

# The loop of the page, linked with the parts of the page.
loop=$work/loop
mkdir "$loop"
extract "project" $page | sed 's/mine.cpp/loop.cpp parts.cpp/' > "$loop/CMakeLists.txt"
extract "loop" $page > "$loop/loop.cpp"
sed -n '/^<!-- file parts.cpp -->/,/^```$/p' $page | grep -v -e '^<!--' -e '^```' > "$loop/parts.cpp"
or_show configure.log cmake -S "$loop" -B "$loop/build" -DCMAKE_PREFIX_PATH="$prefix"
or_show build.log cmake --build "$loop/build"
head -c 20000 examples/data/tinyshakespeare.txt > "$loop/text.txt"
"$loop/build/mine" "$loop/text.txt" 41 > "$work/losses"
awk '/^step/ { loss[++n] = $4 } END { exit !(n == 3 && loss[3] < loss[1] - 0.5) }' "$work/losses" ||
  { cat "$work/losses"; fail "the loop of $page does not learn"; }

sed "s|^find_package.*|add_subdirectory(\"$source\" orrery)|" "$installed/CMakeLists.txt" > "$subfolder/CMakeLists.txt"
cp "$installed"/*.cpp "$subfolder"
# configure_subfolder BUILD_FOLDER OPTIONS...: configures it like BUILD, except for the build type.
configure_subfolder() {
  folder=$subfolder/$1
  shift
  for name in CMAKE_CXX_COMPILER CMAKE_CXX_FLAGS ORRERY_NATIVE ORRERY_WERROR; do
    set -- "-D$name=$(setting "$build" $name)" "$@"
  done
  or_show configure.log cmake -S "$subfolder" -B "$folder" -G "Unix Makefiles" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$@"
}
# commands FOLDER: prints the compiler commands of the libraries' files there, except generated files; files that are
# compiled together are included by a file in CMakeFiles.
commands() {
  sed -n '/\(orrery_core\|orrery_models\|models_objects\)\.dir/s/^ *"command": "\(.*\)",$/\1/p' \
    "$1/compile_commands.json" | grep -v '/\(build_facts\|source_hash\)\.cpp' |
    sed 's/ -o [^ ]*//; s| [^ ]*/CMakeFiles/| CMakeFiles/|' | tr -s ' ' | sort
}
type=$(setting "$build" CMAKE_BUILD_TYPE)
case $type in
  Release) configure_subfolder build ;;
  *) configure_subfolder build -DCMAKE_BUILD_TYPE="$type" -DORRERY_OPTIMIZE=OFF ;;
esac
commands "$build" > "$work/commands"
commands "$subfolder/build" > "$work/commands_of_subfolder"
grep -q tensor.cpp "$work/commands" && cmp "$work/commands" "$work/commands_of_subfolder" ||
  fail "a subfolder is compiled otherwise than by itself"
# The last -O counts.
echo 'add_compile_options(-O0)' > "$work/parent.cmake"
for parent in -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0" \
  "-DCMAKE_BUILD_TYPE= -DCMAKE_PROJECT_mine_INCLUDE=$work/parent.cmake"; do
  # shellcheck disable=SC2086
  configure_subfolder other $parent
  commands "$folder" | sed 's/.*\( -O[^ ]*\).*/\1/' | sort -u > "$work/optimization"
  [ "$(tr -d '\n' < "$work/optimization")" = " -O2 -O3" ] || fail "not optimized in a parent with $parent"
done
# A warning of a newer compiler must not stop a build without options, such as the quickstart's.
or_show configure.log cmake -S "$subfolder" -B "$subfolder/default" -G "Unix Makefiles" \
  -DCMAKE_CXX_COMPILER="$(setting "$build" CMAKE_CXX_COMPILER)" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
commands "$subfolder/default" > "$work/commands"
grep -q tensor.cpp "$work/commands" || fail "a build without options has no files"
! grep -e -Werror "$work/commands" || fail "warnings are errors without ORRERY_WERROR"
! grep -E '^(CUDA|NATIVE|TESTS|EXAMPLES|SANITIZE|INSTALL):' "$subfolder/build/CMakeCache.txt" ||
  fail "options leak into a parent project"
for target in orrery_core models_objects orrery_models; do
  cd "$build/CMakeFiles/$target.dir"
  find . -name '*.o' -exec cp --parents {} "$subfolder/build/orrery/CMakeFiles/$target.dir" \;
  cd "$OLDPWD"
done
find "$subfolder/build" -name '*.o' -exec touch {} +
rm "$subfolder/build/orrery/CMakeFiles/orrery_core.dir/engine/ops/arithmetic.cpp.o"
or_show build.log cmake --build "$subfolder/build" --parallel "$(nproc)" --target mine steps
if [ "$(grep -c Building "$work/build.log")" != 3 ]; then
  cat "$work/build.log"
  fail "more was compiled than the project's own files and the arithmetic"
fi
"$subfolder/build/mine" > "$work/two"
cmp "$work/one" "$work/two" || fail "the installed library and the sources give different results"
cat "$work/one"
time_installed=$("$installed/build/steps") time_subfolder=$("$subfolder/build/steps")
echo "CPU time: installed $time_installed ms, as a subfolder $time_subfolder ms"
[ "$time_subfolder" -le $((3 * time_installed + 50)) ] || fail "the subfolder's code is not optimized"

try() { "$prefix/bin/orrery" try examples/03_new_activation.cpp --steps=0 --out="$work/plugins" "$@"; }
or_show try.log try --headers="$prefix/include/orrery"
! try --headers="$work" > "$work/try.log" 2>&1 || fail "a folder without headers was taken"
grep "there are no headers of orrery in '$work'" "$work/try.log" > "$work/found" || { cat "$work/try.log"; exit 1; }
