#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The forward pass in bfloat16 beside the same in float32, turn by turn in one run. Prints the table of
docs/performance.md.

    tests/bench/bfloat16_vs_float32.py build/bench/bench_forward MODEL.gguf 1024 2048 4096 8192
"""
import json
import statistics
import subprocess
import sys

from goal import at_least

TURNS = 3


def seconds(bench, model, length, dtype):
    said = subprocess.run([bench, model, length, "--runs", "2", "--dtype", dtype], check=True, capture_output=True, text=True)
    return json.loads(said.stdout)["seconds"]


def main():
    bench, model, *lengths = sys.argv[1:]
    print("| tokens | float32 s | bfloat16 s | times faster (median of turns) | goal |\n|---|---|---|---|---|")
    for length in lengths:
        turns = [(seconds(bench, model, length, "float32"), seconds(bench, model, length, "bfloat16")) for _ in range(TURNS)]
        faster = statistics.median(single / half for single, half in turns)
        print(f"| {length} | {min(t[0] for t in turns):.2f} | {min(t[1] for t in turns):.2f} | {faster:.2f} "
              f"| {at_least(faster, 1.8)} |", flush=True)


if __name__ == "__main__":
    main()
