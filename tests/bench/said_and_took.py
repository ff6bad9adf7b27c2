#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What commands say beforehand that they will take, beside what they took: the tables of docs/performance.md.

    tests/bench/said_and_took.py build/bin/kvatlas MODEL.gguf
    tests/bench/said_and_took.py build/bin/kvatlas --shape-8b FOLDER    # writes a checkpoint of 16 GB there if it is new
"""
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checkpoint_8b import write_checkpoint

TASK = "--task needle --lengths 640 --depths 0.5"
COMMANDS = {
    "profile": f"profile {TASK} --seeds 6 --map-samples 0 -o t.h5",
    "calibrate simlayerkv": "calibrate simlayerkv -p p.h5 --recent 128 --force -o simlayerkv.json",
    "calibrate pod": "calibrate pod -p p.h5 --initial 16 --recent 112 --force -o pod.json",
    "calibrate dynamickv": "calibrate dynamickv -p p.h5 --force -o dynamickv.json",
    "calibrate lagkv": "calibrate lagkv -p p.h5 --lags 64,128 --ratios 1/2,1/4 --force -o lagkv.json",
    "calibrate precision": "calibrate precision -p p.h5 --sensitivity-texts 1 --force -o precision.json",
    "calibrate auto": "calibrate auto -p p.h5 --kv-saving 0.5 --context 640 --candidates 8 --force -o auto.json",
    "evaluate": f"evaluate --policy lagkv:lag=64 --against snapkv:budget=128,streaming:recent=128 {TASK} --seeds 4",
    "check": f"check lagkv.json {TASK} --seeds 5 --max-loss 10 --most-samples 5 --force",
    "generate": "generate --prompt Once --new 100 --ignore-eos",
}
# A checkpoint of Llama 3.1 8B's shapes has no tokenizer: its prompts are token ids.
COMMANDS_8B = {
    "profile": "profile --prompts ids.jsonl --map-samples 0 -o p.h5",
    "generate": "generate --prompts ids.jsonl --new 4 --ignore-eos",
    "evaluate": "evaluate --prompts ids.jsonl --policy streaming:recent=128 --new 4 --time-steps 0",
}
UNITS = {"s": 1, "min": 60, "h": 3600}


def seconds(text):
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+) (s|min|h)\b", text))


def main():
    kvatlas, model = (str(Path(word).resolve()) for word in (sys.argv[1], sys.argv[-1]))
    of_8b = sys.argv[2] == "--shape-8b"
    if of_8b and not Path(model, "config.json").exists():
        Path(model).mkdir(parents=True)
        write_checkpoint(Path(model))
    with tempfile.TemporaryDirectory() as folder:
        def run(words):
            begin = time.perf_counter()
            done = subprocess.run([kvatlas, *words.split(), "--model", model], cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode not in (0, 4):
                sys.exit(f"{words}\n{done.stderr}")
            return done.stderr, time.perf_counter() - begin

        if of_8b:
            Path(folder, "ids.jsonl").write_text(json.dumps({"id": "a", "tokens": [random.Random(1).randrange(1000, 90000) for _ in range(512)]}))
        else:
            run("profile --task needle --task passkey:haystack=prose --lengths 640 --depths 0.25,0.75 --seeds 2 --initial 4,16 --recent 112,128 "
                "--map-samples 0 -o p.h5")
        print("| command | it said | it took | took / said |\n|---|---|---|---|")
        for name, words in (COMMANDS_8B if of_8b else COMMANDS).items():
            said, took = run(words)
            plan = seconds(re.search(r"about ((?:\d+ (?:h|min|s)\b ?)+)", said).group(1))
            print(f"| `{name}` | {plan} s | {took:.0f} s | {took / max(1, plan):.2f} |", flush=True)


if __name__ == "__main__":
    main()
