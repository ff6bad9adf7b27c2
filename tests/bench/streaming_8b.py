#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams a model that does not fit: writes a checkpoint of Llama 3.1 8B's shapes with random weights (16 GB of
bfloat16 in four shards), runs the forward pass over 1024 tokens with weights streamed layer by layer, and prints
time and peak resident memory. The checkpoint is removed afterwards unless --keep is given. Needs nothing but Python.

    tests/bench/streaming_8b.py build/bench/bench_forward FOLDER [--profile build/bin/kvatlas] [--keep]

With --profile it takes a profile of 2048 tokens under a budget of 6 GB instead.
"""
import argparse
import json
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import time

from goal import at_most

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 32, 4096, 14336, 32, 8, 128, 128256
SHARDS = 4
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCAB, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072, "hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192},
    "bos_token_id": 128000, "eos_token_id": 128001,
}


def tensors():
    """(name, shape) of every tensor, in the order of the layers."""
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (HIDDEN,)
        yield layer + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield layer + "self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield layer + "self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield layer + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield layer + "post_attention_layernorm.weight", (HIDDEN,)
        yield layer + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield layer + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield layer + "mlp.down_proj.weight", (HIDDEN, INNER)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def values(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def noise(count):
    """`count` random bfloat16 values of either sign between 1/128 and 1/32."""
    sign_and_exponent = bytes(0x3C | (byte & 1) << 7 for byte in range(256))
    block = bytearray(2 * count)
    block[0::2] = random.randbytes(count)
    block[1::2] = random.randbytes(count).translate(sign_and_exponent)
    return block


def write_checkpoint(folder):
    random.seed(8)
    block = memoryview(noise(1 << 24))
    one = b"\x80\x3f"
    everything = list(tensors())
    share = sum(values(shape) for _, shape in everything) / SHARDS
    shards, filled = [[]], 0
    for name, shape in everything:
        if filled > share * len(shards):
            shards.append([])
        shards[-1].append((name, shape))
        filled += values(shape)
    where = {}
    for number, members in enumerate(shards, 1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        print(f"writing {file_name}", file=sys.stderr)
        header, at = {}, 0
        for name, shape in members:
            where[name] = file_name
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * values(shape)]}
            at += 2 * values(shape)
        text = json.dumps(header).encode()
        with open(folder / file_name, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for _, shape in members:
                left = 2 * values(shape)
                if len(shape) == 1:
                    out.write(one * shape[0])
                    continue
                start = 2 * random.randrange(len(block) // 4)
                while left:
                    piece = block[start:start + left]
                    out.write(piece)
                    left -= len(piece)
                    start = 0
    index = {"metadata": {"total_size": 2 * filled}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))  # last: without it the folder is no model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", help="build/bench/bench_forward")
    parser.add_argument("folder", type=pathlib.Path, help="a new folder for the checkpoint, with 16 GB of room")
    parser.add_argument("--profile", metavar="KVATLAS", help="build/bin/kvatlas: instead, profile 2048 tokens under 6 GB")
    parser.add_argument("--keep", action="store_true", help="leave the checkpoint there, and use one that is there")
    options = parser.parse_args()
    if not (options.keep and (options.folder / "config.json").exists()):
        options.folder.mkdir(parents=True)
        write_checkpoint(options.folder)
    try:
        if options.profile:
            profile(options)
        else:
            forward(options)
    finally:
        if not options.keep:
            shutil.rmtree(options.folder)


def forward(options):
    run = subprocess.run([options.bench, options.folder, "1024", "--runs", "1", "--streaming"], check=True,
                         capture_output=True, text=True)
    got = json.loads(run.stdout)
    print(f"{got['tokens']} tokens through 16 GB of weights: {got['seconds']:.0f} s, peak resident memory "
          f"{got['peak_mb'] / 1000:.2f} GB ({at_most(got['peak_mb'] / 1000, 6)}), first layer done after {got['first_layer_seconds']:.1f} s")


def profile(options):
    prompts, output = options.folder / "prompt.jsonl", options.folder / "p.h5"
    prompts.write_text(json.dumps({"tokens": [(i * 7919 + 13) % 128000 for i in range(2048)]}))
    begin = time.perf_counter()
    run = subprocess.run([options.profile, "profile", "--model", options.folder, "--prompts", prompts, "-o", output,
                          "--memory-budget", "6GB", "--force"], check=True, capture_output=True, text=True)
    took = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
    print(run.stderr.rstrip(), file=sys.stderr)
    print(f"a profile of 2048 tokens, every statistic and maps, through 16 GB of weights: {took:.0f} s, peak resident "
          f"memory {peak:.2f} GB ({at_most(peak, 6)}), file {output.stat().st_size / 1e6:.0f} MB")


main()
