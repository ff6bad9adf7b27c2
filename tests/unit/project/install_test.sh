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

libraries=$(ldd "$program")
! grep 'not found' <<<"$libraries" || { echo "libraries are missing" && exit 1; }
! grep -F "$2" <<<"$libraries" || { echo "libraries of the build folder are used" && exit 1; }
if [[ $4 == ON ]]; then
  ! grep -F "$3" <<<"$libraries" || { echo "libraries of the source folder are used" && exit 1; }
fi
# The driver and the CUDA runtime are asked for when a GPU is, and by LibTorch alone.
! objdump -p "$program" | grep -E 'NEEDED.*libcuda' || { echo "the program itself needs CUDA" && exit 1; }
