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

import gguf
import numpy as np
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


def write_gguf(file, layers):
    """Random codes of Q4_0 with one scale, which gives the same spread; the layers hold the same numbers."""
    block = np.dtype([("scale", "<f2"), ("codes", "u1", 16)])
    random = np.random.default_rng(30)
    writer = gguf.GGUFWriter(file, "qwen3moe")
    for add, value in ((writer.add_block_count, layers), (writer.add_context_length, 32768), (writer.add_embedding_length, 2048),
                       (writer.add_feed_forward_length, 6144), (writer.add_head_count, 32), (writer.add_head_count_kv, 4),
                       (writer.add_key_length, 128), (writer.add_value_length, 128), (writer.add_layer_norm_rms_eps, 1e-6),
                       (writer.add_rope_freq_base, 1e6), (writer.add_vocab_size, VOCABULARY), (writer.add_expert_count, 128),
                       (writer.add_expert_used_count, 8), (writer.add_expert_feed_forward_length, 768)):
        add(value)
    layer = {"attn_q": (4096, 2048), "attn_k": (512, 2048), "attn_v": (512, 2048), "attn_output": (2048, 4096), "ffn_gate_inp": (128, 2048),
             "ffn_gate_exps": (128, 768, 2048), "ffn_up_exps": (128, 768, 2048), "ffn_down_exps": (128, 2048, 768),
             "attn_norm": (2048,), "ffn_norm": (2048,), "attn_q_norm": (128,), "attn_k_norm": (128,)}
    tensors = {"token_embd": (VOCABULARY, 2048), "output": (VOCABULARY, 2048), "output_norm": (2048,)}
    tensors |= {f"blk.{number}.{name}": shape for number in range(layers) for name, shape in layer.items()}
    for name, shape in tensors.items():
        if len(shape) == 1:
            writer.add_tensor_info(f"{name}.weight", shape, np.dtype("f4"), 4 * shape[0])
        else:
            stored = (*shape[:-1], shape[-1] // 32 * block.itemsize)
            writer.add_tensor_info(f"{name}.weight", stored, np.dtype("u1"), int(np.prod(stored)), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    made = {}
    for shape in tensors.values():
        if shape not in made and len(shape) == 1:
            made[shape] = np.ones(shape, "f4")
        elif shape not in made:
            blocks = np.empty((*shape[:-1], shape[-1] // 32), block)
            blocks["scale"] = 0.0043
            blocks["codes"] = random.integers(0, 256, blocks["codes"].shape, "u1")
            made[shape] = blocks.view("u1")
        writer.write_tensor_data(made[shape])
    writer.close()


def whole(kvatlas, folder):
    folder.mkdir(parents=True)
    write_gguf(folder / "model.gguf", WHOLE)
    took, peak = profile(kvatlas, folder / "model.gguf", folder)
    print(f"\n{WHOLE} layers in 4 bits streamed under 12 GiB: a profile of {TOKENS} tokens in {took / 60:.1f} min, peak {peak:.1f} GiB ({at_most(peak, 12)})")


def profile(kvatlas, model, folder):
    """The seconds that a profile of one prompt takes under the budget, and the greatest resident memory in GiB."""
    prompts, output = folder / "prompt.jsonl", folder / "p.h5"
    prompts.write_text(json.dumps({"tokens": [(i * 7919 + 13) % VOCABULARY for i in range(TOKENS)]}))
    begin, peak = time.perf_counter(), 0
    run = subprocess.Popen([kvatlas, "profile", "--model", model, "--prompts", prompts, "--memory-budget", "12GiB", "--capture", "lazy", "-o", output])
    while run.poll() is None:  # what getrusage says of a child counts this process, which has held the model
        status = pathlib.Path(f"/proc/{run.pid}/status").read_text(encoding="ascii")
        peak = max(peak, int(status.split("VmHWM:")[1].split()[0]) / 2**20 if "VmHWM:" in status else 0)
        time.sleep(0.05)
    if run.returncode != 0:
        sys.exit(run.returncode)
    return time.perf_counter() - begin, peak


def streamed(kvatlas, folder, layers=8):
    write_checkpoint(folder, layers)
    took, peak = profile(kvatlas, folder, folder)
    print(f"\n{layers} layers streamed under 12 GiB: a profile of {TOKENS} tokens in {took:.0f} s, peak {peak:.1f} GiB "
          f"({at_most(peak, 12)}); {WHOLE} layers would take {took / layers * WHOLE / 60:.1f} min")


def main():
    bench, kvatlas, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    for step, program in ((beside, bench), (streamed, kvatlas), (whole, kvatlas)):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            step(program, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


main()
