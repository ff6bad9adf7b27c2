# SPDX-License-Identifier: Apache-2.0
"""Documents of all kinds of policies, run here and by `kvatlas evaluate`: the same ids, cache lengths, bytes and
decisions. KVATLAS names the program, KVATLAS_MODEL the demo model."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch

from small_support import SHAPE, Prefill, demo_model, document, golden, load

NEW = 24  # tokens generated; LagKV cuts once while they are
WINDOW = {"initial": 4, "recent": 256}
LAZY = {"settings": {**WINDOW, "threshold": 0.8}}
LAZY_HEADS = {"settings": {**WINDOW, "threshold": 0.8, "granularity": "head"}}
LAG = {"settings": {"sink": 16, "lag": 128, "ratio": "1/4"}}


def baseline(name: str, **settings) -> dict:
    return {"baseline": {"name": name, "settings": settings}}


def documents(lowest: list[list[int]]) -> dict[str, dict]:
    """lowest: PoD's blocks."""

    def pod(recent: int = 64, **more) -> dict:
        settings = {"initial": 16, "recent": recent, "granularity": "head", **more}
        return {"settings": settings, "result": {"lowest": lowest}}

    heads = [[(layer + head) % 3 == 0 for head in range(SHAPE["kv_heads"])] for layer in range(SHAPE["layers"])]
    budgets = {"settings": {"budget": 128, "pooling": "max"}, "result": {"budgets": [80 + 3 * i for i in range(30)]}}
    return {
        "lazy at the last prompt rows": {"simlayerkv": {"settings": {**LAZY["settings"], "identify": "prefill"}}},
        "as many others": {"simlayerkv": {"settings": {**LAZY["settings"], "opposite": True}}},
        "given heads, LagKV": {
            "heads": {"settings": WINDOW, "result": {"lazy_heads": heads}},
            "lagkv": LAG,
            "compose": ["heads", "lagkv"],
        },
        "lazy layers, LagKV": {"simlayerkv": LAZY, "lagkv": LAG, "compose": ["lagkv", "simlayerkv"]},
        "lazy heads, SnapKV, 4 bits": {
            "simlayerkv": LAZY_HEADS,
            **baseline("snapkv", budget=128),
            "compose": ["simlayerkv", "baseline"],
            "kv_bits": 4,
        },
        "given budgets": {"dynamickv": budgets},
        "PoD with a gate": {"pod": pod(240, tau=0.6)},
        "PoD by the prompt's own rows": {"pod": {"settings": {"initial": 16, "recent": 240, "delta": 0.4}}},
        "PoD, 4 bits": {"pod": pod(), "kv_bits": 4},
        "PoD, DynamicKV": {"pod": pod(), "dynamickv": {"settings": {"budget": 256}}, "compose": ["pod", "dynamickv"]},
        "PoD, LagKV": {"pod": pod(), "lagkv": LAG, "compose": ["pod", "lagkv"]},
        "PoD, lazy layers": {"pod": pod(), "simlayerkv": LAZY, "compose": ["pod", "simlayerkv"]},
        "PoD, lazy heads, LagKV, 4 bits": {
            "pod": pod(400),
            "simlayerkv": LAZY_HEADS,
            "lagkv": LAG,
            "compose": ["pod", "simlayerkv", "lagkv"],
            "kv_bits": 4,
        },
        "window": baseline("window", recent=256),
        "PyramidKV": baseline("pyramidkv", budget=128),
        "H2O": baseline("h2o", budget=128),
        "highest layers": baseline("pyramid-layers", **WINDOW, threshold=0.8),
        "drawn layers": baseline("random-layers", **WINDOW, layers=12, seed=7, **{"from": "upper"}),
        "LagKV, 2 bits": {"lagkv": LAG, "kv_bits": 2},
        "4 bits but the last tokens": {"kv_bits": 4, "kv_residual": 12},
        "LagKV, 2 bits but the last tokens": {"lagkv": LAG, "kv_bits": 2, "kv_residual": 16},
        "H2O, 4 bits but the last tokens": {**baseline("h2o", budget=128), "kv_bits": 4, "kv_residual": 100},
    }


@unittest.skipUnless({"KVATLAS", "KVATLAS_MODEL"} <= set(os.environ), "no program to compare with")
class Program(unittest.TestCase):
    def evaluate(self, tokens: list[int], given: list[dict]) -> list[dict]:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            prompts = folder / "prompt.jsonl"
            prompts.write_text(json.dumps({"id": "p", "tokens": tokens}) + "\n")
            words = [os.environ["KVATLAS"], "evaluate", "--model", os.environ["KVATLAS_MODEL"], "--prompts", prompts]
            words += ["--new", str(NEW), "--ignore-eos", "--json", "--generations", "--time-steps", "0"]
            words += ["--no-comparison"]
            for number, sections in enumerate(given):
                path = folder / f"{number}.json"
                path.write_text(json.dumps(document(SHAPE, sections)))
                words += ["--policy", path]
            out = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines = [json.loads(line) for line in out.stdout.splitlines()]
        self.assertEqual(len(lines), len(given) + 1)  # the full cache first
        return lines[1:]

    def test_both_do_the_same(self):
        entry = json.loads(golden("policies_smollm2.json").read_text())[0]
        given = documents(json.loads(golden("pod_smollm2.json").read_text())[0]["lowest_layer"])
        model = demo_model()
        prefill = Prefill(model, entry["tokens"])
        for (name, sections), line in zip(given.items(), self.evaluate(entry["tokens"], list(given.values()))):
            with self.subTest(name):
                cache = load(sections).cache(model)
                self.assertEqual(prefill.decode(cache, NEW), line["tokens"])
                self.assertEqual(cache.decided().get("lowest_layer"), line.get("lowest_layer"))
                self.assertEqual(cache.decided().get("budgets", line.get("budgets")), line.get("budgets"))
                if line.get("gate_skipped"):
                    self.assertAlmostEqual(cache.skipped / cache.gates, line["gate_skipped"])
                if "pod" not in sections.get("compose", []):
                    self.assertEqual(cache.lengths(), line["cache_lengths"])
                    self.check_bytes(prefill, sections, line)

    def check_bytes(self, prefill: Prefill, sections: dict, line: dict) -> None:
        """After the cut, which the program counts at 16 bits a value, and with kv_bits in whole groups."""
        cache = load(sections).cache(prefill.model)
        prefill.into(cache)
        if cache.plan.delay:
            with torch.no_grad():
                prefill.model(torch.tensor([line["tokens"][:1]]), past_key_values=cache)
        if "kv_bits" in sections:
            bands = [band for bands in cache.bands for band in bands]
            tails = [rows.tail.nbytes for band in bands for rows in (band.keys, band.values)]
            self.assertLess(abs((cache.bytes() - sum(tails) / 2) / line["kept_bytes"] - 1), 0.03)
        else:
            self.assertEqual(cache.bytes(), 2 * line["kept_bytes"])


if __name__ == "__main__":
    unittest.main()
