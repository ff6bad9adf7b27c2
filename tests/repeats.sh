#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# repeats.sh BUILD-FOLDER: builds this commit anew in another folder, without the compiler's cache, and compares byte by
# byte what users are given: programs, wheels and packages. BUILD-FOLDER is what './dev build' left; it takes ten minutes.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")/.."
git diff --quiet HEAD || { echo "repeats: commit first; the other build is of the commit" && exit 1; }
other=$(mktemp -d)/in/a/folder/of/another/length/kvatlas
trap 'rm -rf "${other%/in/*}"' EXIT
git clone -q . "$other"
cp -rl .deps "$other/.deps"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CCACHE_DISABLE=1
cmake -S . -B "$build" >/dev/null 2>&1 # which commit this is
cmake --build "$build" --target program reference_files >/dev/null
(cd "$other" && cmake --preset release -DKVATLAS_TESTS=OFF >/dev/null 2>&1 &&
  cmake --build --preset release --target program reference_files >/dev/null)

sums() { # BUILD
  rm -rf "$1/packages" "$1/repeated"
  python3 "$1/../export/python/build_wheel.py" "$1/repeated" >/dev/null
  python3 "$1/../export/python/build_wheel.py" "$1/repeated" --program "$1" >/dev/null
  (cd "$1" && cpack >/dev/null 2>&1 && sha256sum bin/kvatlas bin/kvatlas-engine bin/kvatlas-viewer lib/kvatlas/libkvatlas_mpi.so lib/kvatlas/libkvatlas_http.so repeated/*.whl \
    packages/*.deb packages/*.tar.gz)
}
here=$(sums "$build")
diff <(echo "$here") <(sums "$other/build") || { echo "repeats: these differ" && exit 1; }
echo "repeats: all of it is equal, byte by byte"
echo "$here"
