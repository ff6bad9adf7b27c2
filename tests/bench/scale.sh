#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scale.sh BENCH_SCALE FOLDER: what very many samples and ranks cost beside the model's work: the assembly of 1000 to 10 000
# samples, and 64 ranks of unequal speed, once on this disk and once where each operation on a file takes 20 ms longer.
set -euo pipefail
bench=$1
folder=$2
rm -rf "$folder" && mkdir -p "$folder"
trap 'rm -rf "$folder"' EXIT
cc -shared -fPIC -O1 -o "$folder/shim.so" "$(dirname "$0")/../faults/shim.c" -ldl
mkdir "$folder/files"
echo 'assembly'
"$bench" assembly "$folder/files" 1000 2000 5000 10000
echo '64 ranks, 0.5 to 1 s a sample, this disk'
"$bench" ranks "$folder/files" 64 2000 500
echo 'the same, each operation on a file 20 ms slower'
LD_PRELOAD=$folder/shim.so KVATLAS_FAULT=write KVATLAS_FAULT_SLOW=20 KVATLAS_FAULT_UNDER=$folder/files \
  "$bench" ranks "$folder/files" 64 2000 500
