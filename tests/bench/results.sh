#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The runs behind docs/results.md, into one folder: tests/bench/results.sh MODEL.gguf FOLDER. About half an hour on two cores.
set -euo pipefail
model=$1
out=$2
kvatlas=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../../build/bin/kvatlas
mkdir -p "$out"
cd "$out"

run() { # run NAME COMMAND…: its tables go to NAME.txt
  local name=$1
  shift
  echo "results: $name" >&2
  "$kvatlas" "$@" --model "$model" >"$name.txt"
}
short=(--task needle --task passkey --lengths 1024)
keep=recent=256

# SimLayerKV Fig. 6 and Fig. 3: strategies that trim as many layers.
run strategies evaluate "${short[@]}" --time-steps 0 --against \
  "simlayerkv:threshold=0.9,$keep,simlayerkv:threshold=0.9,$keep,identify=prefill,simlayerkv:threshold=0.9,$keep,opposite=1" --against \
  "pyramid-layers:threshold=0.9,$keep,random-layers:threshold=0.9,$keep,random-layers:threshold=0.9,$keep,from=lower" --against \
  "random-layers:threshold=0.9,$keep,from=upper,streaming:$keep"

# The tables: all methods, their baselines, compositions, quantisation.
run methods evaluate "${short[@]}" --against \
  "simlayerkv:threshold=0.9,$keep,simlayerkv:threshold=0.9,$keep+kv4,simlayerkv:threshold=0.9,$keep+lagkv:lag=128,ratio=1/2" --against \
  "pod:delta=0.5,recent=240,pod:delta=0.5,recent=240+snapkv:budget=512,lagkv:lag=128,ratio=1/4,local:lag=128,ratio=1/4,l2:lag=128,ratio=1/4" --against \
  "dynamickv:budget=256,snapkv:budget=256,pyramidkv:budget=256,h2o:budget=256,streaming:recent=252,quest:budget=256,minicache:recent=256" --against \
  "full+kv4,full+kv2"

# DynamicKV Table 1: the sweep of budgets.
run budgets evaluate "${short[@]}" --time-steps 0 --against \
  "dynamickv:budget=128,snapkv:budget=128,pyramidkv:budget=128,h2o:budget=128,streaming:recent=124" --against \
  "dynamickv:budget=512,snapkv:budget=512,pyramidkv:budget=512,h2o:budget=512,streaming:recent=508"

# LagKV: 64 digits.
run digits evaluate --task passkey:digits=64 --lengths 1024 --time-steps 0 --against \
  "lagkv:lag=128,ratio=1/2,local:lag=128,ratio=1/2,l2:lag=128,ratio=1/2,lagkv:lag=128,ratio=1/4,local:lag=128,ratio=1/4,l2:lag=128,ratio=1/4"

# PoD Fig. 1c, SimLayerKV Fig. 4/7: agreement under proximal attention, masses along the prompt and the answer.
"$kvatlas" profile --model "$model" --task prose --task needle --lengths 1024 --depths 0.5 --capture lazy,js,agreement,heatmap --new 16 \
  --initial 4,16 --recent 240,256 -o figures.h5 --force >/dev/null
"$kvatlas" calibrate pod -p figures.h5 --recent 240 --initial 16 --force >pod.txt

# Needle scores over length x depth: PoD Fig. 3, DynamicKV Fig. 4, LagKV Fig. 3-4.
run needles evaluate --task needle --lengths 2048,4096,7168 --depths 0.1,0.5,0.9 --time-steps 0 --no-comparison --against \
  "simlayerkv:threshold=0.9,$keep,simlayerkv:threshold=0.9,recent=1024,pod:delta=0.5,recent=240" --against \
  "dynamickv:budget=256,dynamickv:budget=1024,snapkv:budget=1024,h2o:budget=1024,streaming:recent=1020" --against \
  "lagkv:lag=128,ratio=1/2,lagkv:lag=128,ratio=1/4,local:lag=128,ratio=1/4"
