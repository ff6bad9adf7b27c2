#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What trying cache policies costs: kvatlas, which prefills once and decodes all candidates together, beside kvpress
0.5.5, which runs each by itself. 40 candidates of 16 tokens for the ratio to the prefill, then those that kvpress has.

    python3 -m venv peer && peer/bin/pip install torch==2.15.0 kvpress==0.5.5 'transformers<5.3' gguf accelerate
    peer/bin/python tests/bench/evaluate_vs_kvpress.py build/bench/bench_evaluate MODEL.gguf [TOKENS]
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from goal import at_most

NEW = 16


def policies():
    """(our text, how kvpress makes it or None)."""
    for threshold in (0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95):
        yield (f"simlayerkv:threshold={threshold},recent=256",
               lambda kv, n, t=threshold: kv.SimLayerKVPress(lazy_threshold=t, n_recent=256, n_initial=4))
    for lag in (64, 128, 256, 512):
        for parts in (2, 4, 6, 8):
            yield f"lagkv:lag={lag},ratio=1/{parts}", lambda kv, n, lag=lag, parts=parts: lagkv(kv, n, lag, lag // parts)
    for budget in (64, 128, 256, 512):
        yield (f"snapkv:budget={budget}",
               lambda kv, n, b=budget: kv.SnapKVPress(compression_ratio=1 - (b + 0.5) / n, window_size=16, kernel_size=7))
    for recent in (124, 252, 508):
        yield (f"streaming:recent={recent}",
               lambda kv, n, r=recent: kv.StreamingLLMPress(compression_ratio=1 - (r + 4.5) / n, n_sink=4))
    for budget in (64, 96, 128, 192, 256, 512):
        yield f"dynamickv:budget={budget}", None


def lagkv(kv, n, lag, keep):
    length = 16 + keep * ((n - 16) // lag - 1) + lag + (n - 16) % lag
    return kv.LagKVPress(compression_ratio=1 - (length + 0.5) / n, n_sink=16, lag_size=lag)


def peer(model_path, n):
    os.environ["TQDM_DISABLE"] = "1"  # loading would paint bars between the figures
    import kvpress
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    path = pathlib.Path(model_path)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                 attn_implementation="sdpa")
    ids = torch.tensor([[(i * 7919 + 13) % model.config.vocab_size for i in range(n)]])

    def generate():
        return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, min_new_tokens=NEW,
                              do_sample=False, pad_token_id=0)

    with torch.inference_mode():
        generate()  # warms up
        for text, make in policies():
            if make is None:
                continue
            press = make(kvpress, n)
            begin = time.perf_counter()
            with press(model):
                generate()
            print(json.dumps({"policy": text, "seconds": time.perf_counter() - begin}), flush=True)


def main():
    bench, model = sys.argv[1:3]
    tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 2048

    def ours(texts, turns):
        out = subprocess.run([bench, model, str(tokens), str(NEW), str(turns), *texts], check=True,
                             capture_output=True, text=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    everything = [text for text, _ in policies()]
    turns = ours(everything, 3)
    median = lambda name: statistics.median(turn[name] / turn["prefill"] for turn in turns)
    print(f"{len(everything)} candidates of {NEW} tokens on {turns[0]['tokens']} tokens, three turns: prefill "
          f"{statistics.median(t['prefill'] for t in turns):.2f} s; decoding all {median('decode'):.2f} times the prefill "
          f"({at_most(median('decode'), 3)}; with the comparison to full, KL and agreement: {median('decode_and_compare'):.2f})")

    shared = [text for text, make in policies() if make]
    for _ in range(2):
        lines = subprocess.run([sys.executable, __file__, "--peer", model, str(turns[0]["tokens"])], check=True,
                               stdout=subprocess.PIPE, text=True).stdout.splitlines()
        theirs = sum(json.loads(line)["seconds"] for line in lines)
        turn = ours(shared, 1)[0]
        mine = turn["prefill"] + turn["decode"]
        print(f"{len(lines)} candidates that kvpress has: kvatlas {mine:.1f} s, prefill included; kvpress one by one "
              f"{theirs:.1f} s: {theirs / mine:.1f} times faster", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(sys.argv[2], int(sys.argv[3]))
    else:
        main()
