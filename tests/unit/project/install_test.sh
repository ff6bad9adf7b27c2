#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_test.sh CMAKE BUILD-FOLDER SOURCE-FOLDER BUNDLED: installs, moves the result elsewhere, and runs it there.
# BUNDLED (ON or OFF) says that LibTorch is taken along; then nothing may be found outside but the system's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" --install "$2" --prefix "$folder/first" >/dev/null
mv "$folder/first" "$folder/moved"
program=$folder/moved/bin/kvatlas
unset LD_LIBRARY_PATH
"$program" --version
"$program" --help >/dev/null
for file in man/man1/kvatlas.1 bash-completion/completions/kvatlas zsh/site-functions/_kvatlas \
  fish/vendor_completions.d/kvatlas.fish; do
  grep -q calibrate "$folder/moved/share/$file" || { echo "share/$file is missing, or empty" && exit 1; }
done
notice=$folder/moved/share/doc/kvatlas/NOTICE
for words in '^libcli11-dev .*: BSD-3-clause$' '^libhdf5.*, loaded by kvatlas' 'libtorch_cpu.so'; do
  [[ $words == libtorch* && $4 == OFF ]] || grep -q "$words" "$notice" || { echo "the notice lacks $words" && exit 1; }
done
! "$program" --version | grep -q CUDA || grep -q '^CUDA runtime' "$notice" || { echo "the notice lacks CUDA" && exit 1; }

libraries=$(ldd "$program")
! grep 'not found' <<<"$libraries" || { echo "libraries are missing" && exit 1; }
! grep -F "$2" <<<"$libraries" || { echo "libraries of the build folder are used" && exit 1; }
if [[ $4 == ON ]]; then
  ! grep -F "$3" <<<"$libraries" || { echo "libraries of the source folder are used" && exit 1; }
fi
# The driver and the CUDA runtime are asked for when a GPU is, and by LibTorch alone.
! objdump -p "$program" | grep -E 'NEEDED.*libcuda' || { echo "the program itself needs CUDA" && exit 1; }
