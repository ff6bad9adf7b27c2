#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""capture_vs_transformers.py FOLDER [TOKENS …]: processor time of kvatlas.capture beside the forward passes that it records,
in turns in one run: statistics alone, and with maps. FOLDER: a model that transformers loads. KVATLAS names the program."""

import os
import pathlib
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "export/python/program"))

from kvatlas import capturing, program  # noqa: E402
from kvatlas.profile_writer import Prompt  # noqa: E402

TURNS = 3


def main() -> None:
    program.PROGRAM = pathlib.Path(os.environ.get("KVATLAS", ROOT / "build/bin/kvatlas"))
    program.environment = lambda with_torch=True: dict(os.environ)
    torch.set_num_threads(int(os.environ.get("KVATLAS_THREADS", "1")))
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
    print(f"{'tokens':>7} {'transformers':>13} {'statistics':>11} {'with maps':>10}   seconds of processor time, and their ratio")
    for count in map(int, sys.argv[2:] or ("1024", "4096")):
        torch.manual_seed(0)
        prompt = Prompt(torch.randint(3, model.config.vocab_size, (count,)).tolist())
        session = capturing._Session(model, None, {}, "measured", {"map_samples": 1})

        def plain(prompt: Prompt = prompt) -> None:
            with torch.no_grad():
                out = model(torch.tensor([prompt.tokens]), use_cache=True, logits_to_keep=1)
                model(out.logits[0, -1:].argmax(-1)[None], past_key_values=out.past_key_values)

        with session.recorded():
            session.first_look(prompt)
            ways = {"plain": plain, "statistics": lambda: session.sample(1, prompt), "maps": lambda: session.sample(0, prompt)}
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(TURNS):
                for way, run in ways.items():
                    begin = time.process_time()
                    run()
                    times[way].append(time.process_time() - begin)
        base, *others = (statistics.median(of) for of in times.values())
        print(f"{count:7} {base:13.2f}", *(f"{one:.2f} ({one / base:.2f})".rjust(11) for one in others), flush=True)


if __name__ == "__main__":
    main()
