#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# avx_scan.sh LIBRARY…: fails if a weak function outside Highway's per-target namespaces (N_AVX2, …) holds
# instructions that the baseline (x86-64-v2) lacks. The linker keeps one copy of a weak function and may hand
# that one to code which runs on every machine.
set -euo pipefail
found=$(
  for library; do
    # VEX and EVEX instructions begin with v; the others listed are BMI's.
    awk -v library="$library" '
      FNR == NR { if (NF > 1 && $(NF - 1) ~ /^[WVu]$/) weak[$NF] = 1; next }
      /^[0-9a-f]+ <.*>:$/ { name = substr($2, 2, length($2) - 3); next }
      (name in weak) && name !~ /N_AVX/ && !(name in said) &&
      $2 ~ /^(v[a-z0-9]+|shlx|shrx|sarx|rorx|mulx|andn|bextr|blsi|blsr|blsmsk|pdep|pext|bzhi|lzcnt)[lq]?$/ {
        said[name] = 1
        print library ": " name ": " $2 " " $3
      }' <(nm --defined-only "$library") <(objdump -d --no-show-raw-insn "$library")
  done
)
[[ -z $found ]] || { echo "$found" && exit 1; }
echo "no weak function of $# libraries is above the baseline"
