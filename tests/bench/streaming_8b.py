#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams a model that does not fit: writes a checkpoint of Llama 3.1 8B's shapes with random weights (16 GB of
bfloat16 in four shards), runs the forward pass over 1024 tokens with weights streamed layer by layer, and prints
time and peak resident memory, beside the disk's reading alone and the computing alone. The checkpoint is removed
afterwards unless --keep is given. Needs nothing but Python.

    tests/bench/streaming_8b.py build/bench/bench_forward FOLDER [--profile build/bin/kvatlas] [--keep]

With --profile it takes a profile of 2048 tokens under a budget of 6 GB instead.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

from checkpoint_8b import write_checkpoint
from goal import at_least, at_most


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


def forget(folder):
    """Takes the checkpoint out of the system's memory, so that it is read from the disk again."""
    for shard in folder.glob("*.safetensors"):
        file = os.open(shard, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def read_alone(folder):
    begin = time.perf_counter()
    for shard in sorted(folder.glob("*.safetensors")):
        with open(shard, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
    return time.perf_counter() - begin


def forward(options):
    def run():
        done = subprocess.run([options.bench, options.folder, "1024", "--runs", "1", "--streaming"], check=True,
                              capture_output=True, text=True)
        return json.loads(done.stdout)

    forget(options.folder)
    reading = read_alone(options.folder)
    in_memory = run()
    forget(options.folder)
    got = run()
    print(f"{got['tokens']} tokens through 16 GB of weights: {got['seconds']:.0f} s, peak resident memory "
          f"{got['peak_mb'] / 1000:.2f} GB ({at_most(got['peak_mb'] / 1000, 6)}), first layer done after {got['first_layer_seconds']:.1f} s")
    longer = max(reading, in_memory["seconds"])
    print(f"reading the files alone: {reading:.0f} s; computing, with the files in memory as far as they fit: "
          f"{in_memory['seconds']:.0f} s; the larger of both is {longer / got['seconds']:.2f} of it ({at_least(longer / got['seconds'], 0.8)})")


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
