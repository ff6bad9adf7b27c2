#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts: two layers of Qwen3-30B-A3B's shape with random weights, beside transformers (sdpa, float32,
experts by grouped products), turn by turn in one run. Then eight layers of it under a memory budget, of which the whole
model's time follows. The checkpoints are removed afterwards.

    python tests/bench/experts_vs_transformers.py build/bench/bench_forward build/bin/kvatlas FOLDER
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import torch
from goal import at_most
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS, PAIRS, WHOLE = 2048, 3, 48
VOCABULARY = 32000  # the model has 151936, which only the embedding and the head see


def write_checkpoint(folder, layers):
    """Random matrices of a spread that keeps the numbers of every layer of one size."""
    config = AutoConfig.for_model(
        "qwen3_moe", hidden_size=2048, num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=4,
        head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, intermediate_size=6144,
        vocab_size=VOCABULARY, norm_topk_prob=True, decoder_sparse_step=1, rope_theta=1e6, dtype="bfloat16",
        bos_token_id=1, eos_token_id=2, pad_token_id=0)
    torch.manual_seed(30)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model = model.to_empty(device="cpu").bfloat16()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.fill_(1)
            else:
                parameter.normal_(0, 0.02)
    model.save_pretrained(folder)


def transformers_seconds(model, ids):
    begin = time.perf_counter()
    with torch.inference_mode():
        model.model(ids, use_cache=False)
    return time.perf_counter() - begin


def beside(bench, folder):
    write_checkpoint(folder, 2)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    ids = torch.tensor([[(i * 7919 + 13) % VOCABULARY for i in range(TOKENS)]])
    transformers_seconds(model, ids[:, :64])
    pairs = []
    for _ in range(PAIRS):
        theirs = min(transformers_seconds(model, ids) for _ in range(2))
        run = subprocess.run([bench, folder, str(TOKENS), "--runs", "2"], check=True, capture_output=True, text=True)
        pairs.append((json.loads(run.stdout)["seconds"], theirs))
    ratio = sorted(ours / theirs for ours, theirs in pairs)[PAIRS // 2]
    print("| tokens | layers | kvatlas s | transformers s | ratio (median of pairs) | goal |\n|---|---|---|---|---|---|")
    print(f"| {TOKENS} | 2 | {min(p[0] for p in pairs):.2f} | {min(p[1] for p in pairs):.2f} | {ratio:.2f} | {at_most(ratio, 0.9)} |", flush=True)


def streamed(kvatlas, folder, layers=8):
    write_checkpoint(folder, layers)
    prompts, output = folder / "prompt.jsonl", folder / "p.h5"
    prompts.write_text(json.dumps({"tokens": [(i * 7919 + 13) % VOCABULARY for i in range(TOKENS)]}))
    begin, peak = time.perf_counter(), 0
    run = subprocess.Popen([kvatlas, "profile", "--model", folder, "--prompts", prompts, "--memory-budget", "12GiB", "--capture", "lazy", "-o", output])
    while run.poll() is None:  # what getrusage says of a child counts this process, which has held the model
        status = pathlib.Path(f"/proc/{run.pid}/status").read_text(encoding="ascii")
        peak = max(peak, int(status.split("VmHWM:")[1].split()[0]) / 2**20 if "VmHWM:" in status else 0)
        time.sleep(0.05)
    if run.returncode != 0:
        sys.exit(run.returncode)
    took = time.perf_counter() - begin
    print(f"\n{layers} layers streamed under 12 GiB: a profile of {TOKENS} tokens in {took:.0f} s, peak {peak:.1f} GiB "
          f"({at_most(peak, 12)}); {WHOLE} layers would take {took / layers * WHOLE / 60:.1f} min")


def main():
    bench, kvatlas, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    for step, program in ((beside, bench), (streamed, kvatlas)):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            step(program, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


main()
