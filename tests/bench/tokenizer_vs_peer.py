#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encoding 1 MB of distinct text on one thread: kvatlas beside the tokenizers package, which transformers makes of the
same GGUF file. The text is this project's own sources. Prints MB/s of the first pass and of the best of ten.

    python3 -m venv peer && peer/bin/pip install torch==2.15.0 transformers==5.23.0 gguf accelerate
    peer/bin/python tests/bench/tokenizer_vs_peer.py build/bench/bench_tokenizer MODEL.gguf
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
BYTES = 1_000_000
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("analyzer", "calibrate", "docs", "export", "kernels", "viewer")


def own_text():
    text = ""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".cpp", ".hpp", ".md"}:
                text += path.read_text(encoding="utf-8")
    return text.encode()[:BYTES].decode(errors="ignore")


def main():
    bench, model = sys.argv[1], pathlib.Path(sys.argv[2])
    text = own_text()
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        ours = json.loads(subprocess.run([bench, str(model), file.name], check=True, capture_output=True,
                                         text=True).stdout)
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoTokenizer

    peer = AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name).backend_tokenizer
    # The model's own tokenizer.json splits digits, which transformers does not take from a GGUF file.
    peer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    size, rates, tokens = len(text.encode()) / 1e6, [], 0
    for _ in range(10):
        begin = time.perf_counter()
        tokens = len(peer.encode(text, add_special_tokens=False).ids)
        rates.append(size / (time.perf_counter() - begin))
    print("| | tokens | first pass MB/s | best of ten MB/s |\n|---|---|---|---|")
    print(f"| kvatlas | {ours['tokens']} | {ours['first_mb_per_s']:.1f} | {ours['best_mb_per_s']:.1f} |")
    print(f"| tokenizers | {tokens} | {rates[0]:.1f} | {max(rates):.1f} |")
    if tokens != ours["tokens"]:
        sys.exit("the numbers of tokens differ")


main()
