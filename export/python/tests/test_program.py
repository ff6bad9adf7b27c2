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


HEAD_BUDGETS = [[(layer * 53 + head * 97) % 400 for head in range(3)] for layer in range(30)]
FORMATS = ("16", "fp8", "q8_0", "q4_0", "int4", "int2")


def precision(keys: str, values: str, **more) -> dict:
    return {"precision": {"settings": {"keys": keys, "values": values, **more}}}


def by_layer(formats: tuple, **more) -> dict:
    """Each layer's keys in the next of these formats, its values in the one after that."""
    result = {side: [formats[(layer + i) % len(formats)] for layer in range(30)] for i, side in enumerate(("keys", "values"))}
    return {"precision": {"settings": more, "result": result}}


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
        "budgets of heads": {"headkv": {"settings": {"budget": 256}, "result": {"budgets": HEAD_BUDGETS}}},
        "the best of all heads": {"headkv": {"settings": {"budget": 256}}},
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
        "TOVA": baseline("tova", budget=128),
        "KeyDiff": baseline("keydiff", budget=128),
        "ChunkKV": baseline("chunkkv", budget=128),
        "ChunkKV of chunks that fit badly": baseline("chunkkv", budget=150, chunk=17, pooling="max"),
        "CriticalKV": baseline("criticalkv", budget=128),
        "ExpectedAttention": baseline("expected-attention", budget=128),
        "KVzip": baseline("kvzip", budget=128),
        "KVzip by layer, in parts": baseline("kvzip", budget=96, sink=2, chunk=150, layerwise=True),
        "lazy heads, KVzip": {"simlayerkv": LAZY_HEADS, **baseline("kvzip", budget=96), "compose": ["simlayerkv", "baseline"]},
        "lazy heads, HeadKV": {"simlayerkv": LAZY_HEADS, "headkv": {"settings": {"budget": 128}}, "compose": ["simlayerkv", "headkv"]},
        "lazy heads, CriticalKV": {"simlayerkv": LAZY_HEADS, **baseline("criticalkv", budget=96, share=0.25), "compose": ["simlayerkv", "baseline"]},
        "AdaKV": baseline("adakv", budget=128),
        "AdaKV without a safeguard": baseline("adakv", budget=96, safeguard=0.0, pooling="max"),
        "KeyDiff, 4 bits": {**baseline("keydiff", budget=128), "kv_bits": 4},
        "lazy heads, AdaKV": {"simlayerkv": LAZY_HEADS, **baseline("adakv", budget=128), "compose": ["simlayerkv", "baseline"]},
        "lazy layers, TOVA": {"simlayerkv": LAZY, **baseline("tova", budget=128), "compose": ["simlayerkv", "baseline"]},
        "highest layers": baseline("pyramid-layers", **WINDOW, threshold=0.8, shape="top"),
        "drawn layers": baseline("random-layers", **WINDOW, layers=12, seed=7, draws=1, **{"from": "upper"}),
        "LagKV, 2 bits": {"lagkv": LAG, "kv_bits": 2},
        "4 bits but the last tokens": {"kv_bits": 4, "kv_residual": 12},
        "LagKV, 2 bits but the last tokens": {"lagkv": LAG, "kv_bits": 2, "kv_residual": 16},
        "H2O, 4 bits but the last tokens": {**baseline("h2o", budget=128), "kv_bits": 4, "kv_residual": 100},
        "fp8": precision("fp8", "fp8"),
        "q8_0 and q4_0": precision("q8_0", "q4_0"),
        "keys as they are, values in 4 bits": precision("16", "int4"),
        "by layer": by_layer(FORMATS),
        "lazy layers, fp8": {"simlayerkv": LAZY, **precision("fp8", "fp8"), "compose": ["precision", "simlayerkv"]},
        "given budgets, by layer": {"dynamickv": budgets, **by_layer(FORMATS), "compose": ["dynamickv", "precision"]},
        "lazy heads, LagKV, q8_0 and 4 bits": {
            "simlayerkv": LAZY_HEADS,
            "lagkv": LAG,
            **precision("q8_0", "int4"),
            "compose": ["simlayerkv", "lagkv", "precision"],
        },
        "SnapKV, 4 bits and fp8": {
            **baseline("snapkv", budget=128),
            **precision("int4", "fp8"),
            "compose": ["baseline", "precision"],
        },
    }


def chaotic_documents(lowest: list[list[int]]) -> dict[str, dict]:
    """Where the last digit of a number decides which way many others are rounded. With rounded prompts each of them
    is a prefill of its own."""
    pod = {"settings": {"initial": 16, "recent": 64, "granularity": "head"}, "result": {"lowest": lowest}}
    return {
        "PoD, by layer": {"pod": pod, **by_layer(("fp8", "q8_0", "16")), "compose": ["pod", "precision"]},
        "fp8": precision("fp8", "fp8", prefill="rounded"),
        "by layer": by_layer(FORMATS, prefill="rounded"),
        "streaming, q8_0 and q4_0": {
            **baseline("streaming", **WINDOW),
            **precision("q8_0", "q4_0", prefill="rounded"),
            "compose": ["baseline", "precision"],
        },
    }


def held_before(end: int, cache) -> list[list[list[int]]]:
    return [[[position for position in head if position < end] for head in layer] for layer in cache.kept()]


def positions(ranges: list) -> list[list[list[int]]]:
    """Of ranges [begin, end] by layer and KV head."""
    return [[[position for begin, end in head for position in range(begin, end)] for head in layer] for layer in ranges]


@unittest.skipUnless({"KVATLAS", "KVATLAS_MODEL"} <= set(os.environ), "no program to compare with")
class Program(unittest.TestCase):
    def evaluate(self, tokens: list[int], given: list[dict]) -> list[dict]:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            prompts = folder / "prompt.jsonl"
            prompts.write_text(json.dumps({"id": "p", "tokens": tokens}) + "\n")
            words = [os.environ["KVATLAS"], "evaluate", "--model", os.environ["KVATLAS_MODEL"], "--prompts", prompts]
            words += ["--new", str(NEW), "--ignore-eos", "--json", "--generations", "--time-steps", "0"]
            words += ["--no-comparison", "--positions"]
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
                cache = prefill.cache(sections)
                self.assertEqual(prefill.decode(cache, NEW), line["tokens"])
                self.assertEqual(cache.decided().get("lowest_layer"), line.get("lowest_layer"))
                self.assertEqual(cache.decided().get("budgets", line.get("budgets")), line.get("budgets"))
                if line.get("gate_skipped"):
                    self.assertAlmostEqual(cache.skipped / cache.gates, line["gate_skipped"])
                if "pod" not in sections.get("compose", []):
                    self.assertEqual(cache.lengths(), line["cache_lengths"])
                    self.check_bytes(prefill, sections, line)
                    if "lagkv" not in sections:  # which goes on cutting
                        self.assertEqual(held_before(line["cut_after"], cache), positions(line["positions"]))

    def test_both_part_at_near_ties_alone(self):
        """Factors of 1 + 1e-6 on the keys and values, before they are rounded, move logits by up to 0.8 here."""
        entry = json.loads(golden("policies_smollm2.json").read_text())[0]
        given = chaotic_documents(json.loads(golden("pod_smollm2.json").read_text())[0]["lowest_layer"])
        model, ids = demo_model(), torch.tensor([entry["tokens"]])
        how = {"do_sample": False, "min_new_tokens": NEW, "max_new_tokens": NEW}
        how |= {"output_logits": True, "return_dict_in_generate": True, "attention_mask": torch.ones_like(ids)}
        for (name, sections), line in zip(given.items(), self.evaluate(entry["tokens"], list(given.values()))):
            with self.subTest(name):
                cache = load(sections).cache(model)
                out = model.generate(ids, past_key_values=cache, **how)
                got = out.sequences[0, ids.shape[1] :].tolist()
                parting = [step for step, both in enumerate(zip(got, line["tokens"])) if both[0] != both[1]]
                if parting:
                    best, second = out.logits[parting[0]][0].topk(2).values
                    self.assertLess(best - second, 0.5)
                self.assertEqual(cache.lengths(), line["cache_lengths"])

    def check_bytes(self, prefill: Prefill, sections: dict, line: dict) -> None:
        """After the cut. The program counts what is not rounded at 16 bits a value, and groups of 32 as whole ones."""
        cache = prefill.cache(sections)
        prefill.into(cache)
        if cache.plan.delay:
            with torch.no_grad():
                prefill.model(torch.tensor([line["tokens"][:1]]), past_key_values=cache)
        tensors = [tensor for bands in cache.bands for band in bands for tensor in band.tensors()]
        plain = sum(tensor.nbytes for tensor in tensors if tensor.dtype == torch.float32)
        got = cache.bytes() - plain / 2
        if "kv_bits" in sections or "int" in json.dumps(sections.get("precision", "")):
            self.assertLess(abs(got / line["kept_bytes"] - 1), 0.03)
        else:
            self.assertEqual(got, line["kept_bytes"])


if __name__ == "__main__":
    unittest.main()
