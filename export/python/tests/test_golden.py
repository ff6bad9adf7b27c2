# SPDX-License-Identifier: Apache-2.0
"""The demo model under every policy of the reference data: the same ids, cache lengths and decisions, and the bytes
that the policy promises."""

import json
import unittest

import torch

from small_support import SHAPE, Prefill, demo_model, golden, load

TOKEN = 2 * SHAPE["head_dim"] * 4  # bytes of a token's key and value in one KV head, in float32


def sections_of(entry: dict) -> dict:
    settings = dict(entry["policy"])
    name = settings.pop("name")
    if name == "full":
        return {"simlayerkv": {"settings": {"threshold": 1, "identify": "prefill"}}}
    if name == "pod":
        settings.pop("blocks")
        return {"pod": {"settings": settings, "result": {"lowest": entry["lowest_layer"]}}}
    if name == "lagkv":
        settings["ratio"] = str(settings["ratio"])
    if name == "streaming":
        return {"baseline": {"name": name, "settings": settings}}
    return {name: {"settings": settings}}


def promised_bytes(entry: dict, seen: int) -> int:
    if "cache_lengths" in entry:
        return sum(entry["cache_lengths"]) * SHAPE["kv_heads"] * TOKEN
    everything = seen * SHAPE["layers"] * SHAPE["kv_heads"]
    distant = max(0, seen - entry["policy"]["initial"] - entry["policy"]["recent"])
    shared = round(entry["keys_dropped"] * SHAPE["layers"] * SHAPE["kv_heads"])
    return everything * TOKEN - shared * distant * TOKEN // 2


class Golden(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = demo_model()
        cls.entries = json.loads(golden("policies_smollm2.json").read_text())
        cls.prompts = {entry["prompt"]: entry["tokens"] for entry in cls.entries if "tokens" in entry}
        cls.pod_entries = json.loads(golden("pod_smollm2.json").read_text())

    def check(self, entry: dict, cache, got: list[int]) -> None:
        self.assertEqual(got, entry["generated"])
        decided = cache.decided()
        for key in ("lazy", "budgets"):
            if key in entry:
                self.assertEqual(decided[key], entry[key])
        if "cache_lengths" in entry:
            self.assertEqual(cache.lengths(), entry["cache_lengths"])
        if "mass" in entry:
            for mass, expected in zip(decided["mass"], entry["mass"], strict=True):
                self.assertAlmostEqual(mass, expected, delta=1e-5)
        self.assertEqual(cache.bytes(), promised_bytes(entry, cache.seen))

    def run_entries(self, entries: list[dict]) -> int:
        for prompt, tokens in self.prompts.items():
            prefill = Prefill(self.model, tokens)
            for entry in entries:
                if entry["prompt"] != prompt:
                    continue
                with self.subTest(prompt=prompt, policy=entry["policy"]):
                    cache = load(sections_of(entry)).cache(self.model)
                    self.check(entry, cache, prefill.decode(cache, len(entry["generated"])))
        return len(entries)

    def test_policies(self):
        self.assertEqual(self.run_entries(self.entries), 81)

    def test_pod(self):
        self.assertEqual(self.run_entries(self.pod_entries), 15)

    def test_generate_does_the_same(self):
        """One policy of each method through the public path."""
        prompt = next(iter(self.prompts))
        methods = {}
        for entry in self.entries + self.pod_entries:
            if entry["prompt"] == prompt and entry.get("new", 12) == 12:
                methods[entry["policy"]["name"]] = entry
        self.assertEqual(set(methods), {"full", "streaming", "simlayerkv", "lagkv", "dynamickv", "pod"})
        ids = torch.tensor([self.prompts[prompt]])
        for name, entry in methods.items():
            with self.subTest(method=name):
                cache = load(sections_of(entry)).cache(self.model)
                out = self.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    past_key_values=cache,
                    do_sample=False,
                    min_new_tokens=12,
                    max_new_tokens=12,
                )
                self.check(entry, cache, out[0, ids.shape[1] :].tolist())


if __name__ == "__main__":
    unittest.main()
