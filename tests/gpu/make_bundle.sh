#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make_bundle.sh FILE.tar.gz: packs, from the packages that './dev setup' installed, what a build for a GPU machine without
# a network needs beside LibTorch, CUDA, CMake, Ninja and a compiler: headers, libraries and what these load, pkg-config.
set -euo pipefail
shopt -s inherit_errexit
output=$1
packages=(libbenchmark-dev libcli11-dev libdeflate-dev libeigen3-dev libgmock-dev libgtest-dev libhdf5-dev libhwy-dev libpcre2-dev
  libsentencepiece-dev libutf8proc-dev libvalijson-dev libyaml-cpp-dev nlohmann-json3-dev pkgconf-bin)
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT

# What the build reads: no documentation, and of static libraries only those that have no shared one.
dpkg -L "${packages[@]}" | sort -u | while read -r path; do
  [[ -f $path ]] || continue
  case $path in
    */libgtest*.a | */libgmock*.a | */libbenchmark_main.a) ;;
    *.a | */share/doc/* | */share/man/* | */share/lintian/* | *fortran* | *.mod) continue ;;
  esac
  cp --parents -P "$path" "$staging"
done

# The shared libraries that the links name, and all that they load but what every machine with a compiler has.
find "$staging" \( -name '*.so' -o -name pkgconf \) | while read -r link; do
  file=$(realpath "/${link#"$staging/"}")
  echo "$file"
  objdump -p "$file" | sed -n "s|^ *SONAME *|${file%/*}/|p"
  ldd "$file" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p'
done | sort -u | while read -r library; do
  case ${library##*/} in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libstdc++.so.* | libgcc_s.so.* | libresolv.so.*) continue ;;
  esac
  cp --parents -L "/usr${library#/usr}" "$staging" # /lib is a link to /usr/lib
done

# Where CMake looks on a machine of any distribution.
cd "$staging/usr"
mv lib/x86_64-linux-gnu/* lib
rmdir lib/x86_64-linux-gnu && ln -s . lib/x86_64-linux-gnu
ln -s hdf5/serial/libhdf5.so lib
(cd include && ln -s hdf5/serial/*.h .)
cd "$OLDPWD"

tar -C "$staging" --sort=name --owner=0 --group=0 --mtime=@0 -czf "$output" .
printf '%s: %s\n' "$output" "$(du -h "$output" | cut -f1)"
