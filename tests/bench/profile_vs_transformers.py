#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a profile costs: kvatlas beside its own plain forward pass, and beside transformers with output_attentions
(eager, float32), which holds every map in memory. Prints the tables of docs/performance.md.

    python3 -m venv peer && peer/bin/pip install torch==2.15.0 transformers==5.23.0 gguf accelerate
    peer/bin/python tests/bench/profile_vs_transformers.py build/bench/bench_profile MODEL.gguf [PEER_TOKENS [TOKENS...]]

PEER_TOKENS (4096) is the length that transformers runs at; 4096 tokens of SmolLM2 take it 20 GB.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

from goal import at_least, at_most

CHILD = "--transformers"


def transformers_child(model_path, length):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    path = pathlib.Path(model_path)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    ids = torch.tensor([[(i * 7919 + 13) % model.config.vocab_size for i in range(length)]])
    with torch.inference_mode():
        begin = time.perf_counter()
        out = model.model(ids, use_cache=False, output_attentions=True)
        took = time.perf_counter() - begin
        assert len(out.attentions) == model.config.num_hidden_layers
    status = pathlib.Path("/proc/self/status").read_text()
    print(json.dumps({"seconds": took, "peak_mb": int(status.split("VmHWM:")[1].split()[0]) / 1000}))


def main():
    bench, model = sys.argv[1:3]
    peer_tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 4096
    lengths = [int(n) for n in sys.argv[4:]] or [1024, 2048, 4096, 8192]

    def ours(length, rounds):
        return json.loads(subprocess.run([bench, model, str(length), "--rounds", str(rounds)], check=True,
                                         capture_output=True, text=True).stdout)

    print("| tokens | forward s | statistics s, ratio, goal | with columns and maps s, ratio, goal "
          "| peak MB: forward, statistics, maps |")
    print("|---|---|---|---|---|")
    for length in lengths:
        row = ours(length, 3)
        plain, some, all_ = row["plain"], row["statistics"], row["maps"]
        print(f"| {length} | {plain['seconds']:.2f} | {some['seconds']:.2f}, {some['ratio']:.2f}, {at_most(some['ratio'], 1.1)} "
              f"| {all_['seconds']:.2f}, {all_['ratio']:.2f}, {at_most(all_['ratio'], 1.5)} "
              f"| {plain['peak_mb']:.0f}, {some['peak_mb']:.0f}, {all_['peak_mb']:.0f} |", flush=True)

    print(f"\nBeside transformers with output_attentions at {peer_tokens} tokens, turn by turn:")
    for _ in range(2):
        theirs = json.loads(subprocess.run([sys.executable, __file__, CHILD, model, str(peer_tokens)], check=True,
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout)
        row = ours(peer_tokens, 1)
        for mode in "statistics", "maps":
            faster = theirs["seconds"] / row[mode]["seconds"]
            smaller = theirs["peak_mb"] / row[mode]["peak_mb"]
            print(f"- {mode}: {row[mode]['seconds']:.1f} s, {row[mode]['peak_mb']:.0f} MB; transformers "
                  f"{theirs['seconds']:.1f} s, {theirs['peak_mb']:.0f} MB: {faster:.1f} times faster "
                  f"({at_least(faster, 4)}), {smaller:.1f} times less memory ({at_least(smaller, 10)})", flush=True)


if len(sys.argv) > 2 and sys.argv[1] == CHILD:
    transformers_child(sys.argv[2], int(sys.argv[3]))
else:
    main()
