#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `kvatlas profile --dry-run` says of three large models: memory, time and size of the file. The weights are holes
in a file, so it needs neither the models nor their room; time is the program's plan for this machine, not a measurement.

    tests/bench/plans.py build/bin/kvatlas
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from model_shapes import CONFIGS, write_hollow  # noqa: E402

LENGTHS = (2048, 8192, 32768)


def plan(kvatlas, model, tokens, more):
    prompts = model.parent / f"{tokens}.jsonl"
    prompts.write_text(json.dumps({"tokens": [(i * 7919 + 13) % 128000 for i in range(tokens)]}))
    run = subprocess.run([kvatlas, "profile", "--model", model, "--prompts", prompts, "-o", model.parent / "p.h5",
                          "--map-samples", "0", "--dry-run", *more], capture_output=True, text=True, check=False)
    said = run.stderr
    if run.returncode:
        return [said.strip().splitlines()[-1]]
    memory = re.search(r"about (\S+ \S+) of memory", said).group(1)
    time = re.search(r"about (.*) and a file", said).group(1)
    size = re.search(r"a file of at most (.*)", said).group(1)
    return [memory, time, size]


def main():
    kvatlas = Path(sys.argv[1]).resolve()
    print("| model | tokens | weights | memory | one prompt | file |\n|---|---|---|---|---|---|")
    for name, config in CONFIGS.items():
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            write_hollow(model, config)
            for tokens in LENGTHS:
                for how, more in (("resident", ("--memory-budget", "1000GiB")), ("streamed", ("--memory-budget", "20GiB"))):
                    print(f"| {name} | {tokens} | {how} | " + " | ".join(plan(kvatlas, model, tokens, more)) + " |", flush=True)


if __name__ == "__main__":
    main()
