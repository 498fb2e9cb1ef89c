#!/bin/sh
# sh tests/package.sh BUILD: README's lines for a project of one's own, once with an installed orrery and once with its
# sources as a subfolder, which takes over the objects of BUILD.  `orrery try` then works with the installed headers.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
source=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# or_show LOG COMMAND...: what the command prints goes to the log, and is shown if it fails.
or_show() {
  log=$work/$1
  shift
  "$@" > "$log" 2>&1 || { cat "$log"; exit 1; }
}
fail() {
  echo "$1"
  exit 1
}

# README holds both files between these marks.
extract() { sed -n "/^<!-- $1 begin -->/,/^<!-- $1 end -->/p" README.md | grep -v -e '^<!--' -e '^```'; }
installed=$work/installed subfolder=$work/subfolder prefix=$work/prefix
mkdir "$installed" "$subfolder"
extract "project" > "$installed/CMakeLists.txt"
extract "program" > "$installed/mine.cpp"
grep -q main "$installed/mine.cpp" || fail "README has lost its program"

or_show install.log cmake --install "$build" --prefix "$prefix"
or_show configure.log cmake -S "$installed" -B "$installed/build" -DCMAKE_PREFIX_PATH="$prefix"
or_show build.log cmake --build "$installed/build"
"$installed/build/mine" > "$work/one"

sed "s|^find_package.*|add_subdirectory(\"$source\" orrery)|" "$installed/CMakeLists.txt" > "$subfolder/CMakeLists.txt"
cp "$installed/mine.cpp" "$subfolder"
setting() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
or_show configure.log cmake -S "$subfolder" -B "$subfolder/build" -G "Unix Makefiles" \
  -DCMAKE_BUILD_TYPE="$(setting CMAKE_BUILD_TYPE)" -DCMAKE_CXX_COMPILER="$(setting CMAKE_CXX_COMPILER)"
! grep -E '^(CUDA|NATIVE|TESTS|EXAMPLES|SANITIZE|INSTALL):' "$subfolder/build/CMakeCache.txt" ||
  fail "options leak into a parent project"
for target in orrery_core orrery_models; do
  cd "$build/CMakeFiles/$target.dir"
  find . -name '*.o' -exec cp --parents {} "$subfolder/build/orrery/CMakeFiles/$target.dir" \;
  cd "$OLDPWD"
done
find "$subfolder/build" -name '*.o' -exec touch {} +
or_show build.log cmake --build "$subfolder/build" --parallel "$(nproc)" --target mine
if [ "$(grep -c Building "$work/build.log")" != 1 ]; then
  cat "$work/build.log"
  fail "more was compiled than the project's own file"
fi
"$subfolder/build/mine" > "$work/two"
cmp "$work/one" "$work/two" || fail "the installed library and the sources give different results"
cat "$work/one"

try() { "$prefix/bin/orrery" try examples/03_new_activation.cpp --steps=0 --out="$work/plugins" "$@"; }
or_show try.log try --headers="$prefix/include/orrery"
! try --headers="$work" > "$work/try.log" 2>&1 || fail "a folder without headers was taken"
grep "there are no headers of orrery in '$work'" "$work/try.log" > "$work/found" || { cat "$work/try.log"; exit 1; }
