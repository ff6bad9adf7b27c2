#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The forward pass of kvatlas beside that of transformers (sdpa, float32), turn by turn in one run, both without KV
cache and output head. Prints the table of docs/performance.md.

    python3 -m venv peer && peer/bin/pip install torch==2.15.0 transformers==5.23.0 gguf accelerate
    peer/bin/python tests/bench/forward_vs_transformers.py build/bench/bench_forward MODEL.gguf 1024 2048 4096 8192
"""
import json
import os
import pathlib
import subprocess
import sys
import time

from goal import at_most

CHILD = "--transformers"
RUNS = 2  # of each turn the better one counts, for both


def transformers_child(model_path):
    """Answers each line on stdin (a length) with a line of JSON, so that parent can alternate."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    start = time.perf_counter()
    path = pathlib.Path(model_path)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="sdpa").model
    load = time.perf_counter() - start
    # Peak memory of the forward pass alone: the loading's own peak is not held against the peer.
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    vocab = model.config.vocab_size
    with torch.inference_mode():
        for line in sys.stdin:
            ids = torch.tensor([[(i * 7919 + 13) % vocab for i in range(int(line))]])
            took = []
            for _ in range(RUNS):
                begin = time.perf_counter()
                model(ids, use_cache=False)
                took.append(time.perf_counter() - begin)
            status = pathlib.Path("/proc/self/status").read_text()
            peak = int(status.split("VmHWM:")[1].split()[0]) / 1000
            print(json.dumps({"seconds": min(took), "peak_mb": peak, "load_seconds": load}), flush=True)


def main():
    bench, model = sys.argv[1:3]
    lengths = [int(n) for n in sys.argv[3:]] or [2048, 4096]
    peer = subprocess.Popen([sys.executable, __file__, CHILD, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)

    def ask(length):
        peer.stdin.write(f"{length}\n")
        peer.stdin.flush()
        return json.loads(peer.stdout.readline())

    ask(16)  # its threads start
    print("| tokens | kvatlas s | transformers s | ratio (median of pairs) | goal | kvatlas peak MB | transformers peak MB |")
    print("|---|---|---|---|---|---|---|")
    for length in lengths:
        pairs = []
        for _ in range(int(os.environ.get("PAIRS", "3"))):
            theirs = ask(length)
            ours = json.loads(subprocess.run([bench, model, str(length), "--runs", str(RUNS)], check=True,
                                             capture_output=True, text=True).stdout)
            pairs.append((ours["seconds"], theirs["seconds"], ours["peak_mb"], theirs["peak_mb"]))
        ratios = sorted(a / b for a, b, _, _ in pairs)
        print(f"| {length} | {min(p[0] for p in pairs):.2f} | {min(p[1] for p in pairs):.2f} "
              f"| {ratios[len(ratios) // 2]:.2f} | {at_most(ratios[len(ratios) // 2], 0.85)} | {pairs[-1][2]:.0f} | {pairs[-1][3]:.0f} |", flush=True)
    cold = json.loads(subprocess.run([bench, model, "16", "--runs", "1"], check=True, capture_output=True,
                                     text=True).stdout)
    print(f"\nOpening the GGUF until the first layer has run: kvatlas {cold['first_layer_seconds']:.2f} s "
          f"({at_most(cold['first_layer_seconds'], 1)}); "
          f"transformers loads it in {theirs['load_seconds']:.0f} s")
    peer.stdin.close()


if len(sys.argv) > 2 and sys.argv[1] == CHILD:
    transformers_child(sys.argv[2])
else:
    main()
