#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the repository's folder: MODEL is the checkpoint's folder; more options of pred.py
# may follow.
exec python run/longbench/pred.py --method DynamicKV_v11 \
  --model_path "${MODEL:?}" --model_name llama \
  --max_capacity_prompts 128 --window_size 16 \
  --kernel_sizes 7 --pooling avgpool --radio_max 10.0 "$@"
