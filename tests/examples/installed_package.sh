#!/usr/bin/env bash
# The installed library, as somebody else's project finds it: installs the build, looks whether every header that is
# installed brings what it includes, builds the example out of the tree and compares its losses with the build's own,
# digit by digit. And whether the code that docs/library.md shows is the code that was built.
#
#   installed_package.sh SOURCE BUILD WORK PROGRAM [CMAKE ARGUMENT...]
set -euo pipefail
source=$1 build=$2 work=$3 program=$4
shift 4

python3 -B "$source/tests/examples/shown_code.py" "$source/docs/library.md" "$source/examples/convolution"

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"

# What is installed is built with the program alone (./sluice train).
if [[ -f $build/build.ninja ]]; then
  ninja -C "$build" -t inputs sluice_cli >"$work/inputs.txt"
  while read -r file; do
    grep -q "\(^\|/\)$file\$" "$work/inputs.txt" || { echo "sluice_cli does not build $file"; exit 1; }
  done < <(sed -n 's|^-- \(Installing\|Up-to-date\): .*/\(lib[^/]*\.\(a\|so\)\)$|\2|p' "$work/install.log")
fi
# And where something is not built, nothing is installed.
sed 's|/libsluice_zero\.a|/libsluice_absent.a|g' "$build/cmake_install.cmake" >"$work/incomplete.cmake"
if cmake "-DCMAKE_INSTALL_PREFIX=$work/nothing" -P "$work/incomplete.cmake" >"$work/incomplete.log" 2>&1; then
  echo "an incomplete build was installed"
  exit 1
fi
grep -q 'libsluice_absent.a is not built' "$work/incomplete.log"
[[ ! -e $work/nothing ]]

missing=0
cd "$work/prefix/include/sluice"
while IFS=: read -r header include; do
  included=$(sed 's/.*"\(.*\)".*/\1/' <<<"$include")
  if [[ ! -f $included ]]; then
    echo "$header includes $included, which is not installed"
    missing=1
  fi
done < <(grep -rE '^#include "' --include='*.hpp' .)
((missing == 0))

cd "$work"
cp -r "$source/examples/convolution" my_model  # the folder alone, under another name
cmake -S my_model -B built -DCMAKE_PREFIX_PATH="$work/prefix" "$@" >configure.log
cmake --build built
text=$source/runtime/program
built/convolution "$text" 3 2 5 >installed.txt
"$program" "$text" 3 2 5 >in_tree.txt
cat installed.txt
[[ -s installed.txt ]]
cmp installed.txt in_tree.txt
