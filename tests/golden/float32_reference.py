#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes float32_reference.json: last-position logits of the half-precision tiny checkpoints, computed by transformers
in float32 with RoPE frequencies in float32, as from_pretrained(dtype=float32) does. (golden/tiny/expected.h5
holds them for frequencies rounded to the checkpoint's own format; see forward_test.cpp.)

    python3 float32_reference.py GOLDEN_FOLDER     # needs torch, transformers (5.23.0 was used), h5py
"""
import json
import pathlib
import sys

import h5py
import torch
from transformers import AutoModelForCausalLM

NAMES = ["llama2_mha_f16", "llama31_scaled_rope_bf16", "mistral_bf16", "qwen2_tied_bf16", "yi_bf16_sharded"]

tiny = pathlib.Path(sys.argv[1]) / "tiny"
expected = h5py.File(tiny / "expected.h5")
result = {}
for name in NAMES:
    model = AutoModelForCausalLM.from_pretrained(tiny / name, dtype=torch.float32, attn_implementation="eager")
    tokens = torch.tensor(expected[name]["tokens"][:]).long()[None]
    with torch.no_grad():
        result[name] = [round(value, 6) for value in model(tokens).logits[0, -1].tolist()]
text = json.dumps(result, indent=0)
pathlib.Path(__file__).with_name("float32_reference.json").write_text(text + "\n")
