# SPDX-License-Identifier: Apache-2.0
"""Reading policy documents: what is taken, and what is refused in which words."""

import copy
import json
import pathlib
import tempfile
import unittest

import small_support as support
from kvatlas_transformers import PolicyError, load
from kvatlas_transformers.parts import kept_of_partition

SHAPE = {"layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 8, "name": "Tiny"}
SIM = {"settings": {"threshold": 0.7, "recent": 256}, "result": {"lazy_layers": [False, True, True, False]}}
LAG = {"settings": {"lag": 64, "ratio": "1/6"}, "result": {"kept": 10}}


def document(**members) -> dict:
    return support.document(SHAPE, copy.deepcopy(members))


class Document(unittest.TestCase):
    def refused(self, given, message: str, **how) -> None:
        with self.assertRaises(PolicyError) as caught:
            load(given, **how)
        self.assertIn(message, str(caught.exception))

    def test_reads_a_section_with_its_defaults(self):
        part = load(document(simlayerkv=SIM)).parts[0]
        self.assertEqual(part.keep, (4, 256))
        self.assertEqual(part["identify"], "decode")
        self.assertEqual(part.lazy, [[False], [True], [True], [False]])

    def test_several_sections_need_a_choice_or_a_composition(self):
        both = document(simlayerkv=SIM, lagkv=LAG)
        self.refused(both, "holds 2 policies; pass section=, one of simlayerkv, lagkv")
        self.assertEqual(load(both, section="lagkv").parts[0]["keep"], 10)
        self.refused(both, "no section 'pod'; the document has simlayerkv, lagkv", section="pod")
        composed = load({**both, "compose": ["lagkv", "simlayerkv"], "kv_bits": 4})
        self.assertEqual([part.name for part in composed.parts], ["simlayerkv", "lagkv"])
        self.assertEqual(composed.kv_bits, 4)
        self.refused({**both, "compose": ["lagkv", "pod"]}, "compose names 'pod', which the document lacks")
        baseline = {"name": "snapkv", "settings": {}}
        self.refused(document(lagkv=LAG, baseline=baseline, compose=["lagkv", "baseline"]), "both a part that selects")

    def test_four_bits_alone_are_the_full_cache_in_them(self):
        policy = load(document(kv_bits=4))
        self.assertEqual((policy.parts, policy.kv_bits, policy.kv_residual), ([], 4, 0))
        self.assertEqual(load(document(kv_bits=4, kv_residual=32)).kv_residual, 32)
        self.refused(document(), "the document holds no policy")
        self.refused(document(kv_bits=4), "no section 'lagkv'; the document has none", section="lagkv")
        load(document(lagkv=LAG, search={"trials": 3}, pareto=[{"policy": "full"}],
                      compared=[{"policy": "tova:budget=64", "measured": {}}]))

    def test_budgets_of_a_task(self):
        section = {"settings": {}, "result": {"budgets": [1, 2, 3, 4], "tasks": {"needle": [4, 3, 2, 1]}}}
        self.assertEqual(load(document(dynamickv=section)).parts[0].budgets, [1, 2, 3, 4])
        self.assertEqual(load(document(dynamickv=section), task="needle").parts[0].budgets, [4, 3, 2, 1])
        self.refused(document(dynamickv=section), "no budgets for task 'qa'; it has them for needle", task="qa")
        self.refused(document(lagkv=LAG), "only DynamicKV has budgets by task", task="needle")

    def test_versions(self):
        given = document(lagkv=LAG)
        self.refused({**given, "schema": "kvatlas.policy/2.0"}, "newer major version")
        self.refused({**given, "schema": "other/1.0"}, "schema is 'other/1.0', expected kvatlas.policy/1.0")
        self.refused({**given, "later": 1}, "no member 'later' in kvatlas.policy/1.0")
        load({**given, "later": 1, "schema": "kvatlas.policy/1.7"})
        self.refused({}, "no 'schema'")
        windows = {"model": {**SHAPE, "windows": [512, 0]}}
        self.refused({**given, **windows}, "model.windows: found [512, 0], expected a number for each of 4 layers")
        windows["model"]["windows"] = [512, 0, 512, 512]
        self.assertEqual(load({**given, **windows}).shape.layers, 4)
        latent = {"model": {**SHAPE, "latent_rank": 8}}
        self.refused({**given, **latent}, "model.latent_rank: this package runs models whose layers all have attention")

    def test_names_the_place(self):
        def sim(**settings):
            return document(simlayerkv={"settings": settings})

        self.refused(sim(recent=0), "simlayerkv.settings.recent: found 0, expected 1 to 16777216")
        self.refused(sim(recent=True), "simlayerkv.settings.recent: found True, expected a whole number")
        self.refused(sim(threshold="a"), "simlayerkv.settings.threshold: found 'a', expected a number")
        self.refused(sim(identify="later"), "expected one of decode, prefill")
        self.refused(sim(rescent=3), "simlayerkv.settings.rescent: unknown setting")
        self.refused(document(simlayerkv={}), "simlayerkv.settings: missing")
        lazy = {"settings": {}, "result": {"lazy_layers": [True] * 5}}
        self.refused(document(simlayerkv=lazy), "result.lazy_layers has 5 entries, and the model has 4 layers")
        heads = {"settings": {}, "result": {"lazy_heads": [[True], [True, False, True], [True], [False]]}}
        self.refused(document(heads=heads), "heads.result.lazy_heads.1 has 3 entries, and the model has 2 KV heads")
        self.refused(document(heads={"settings": {}}), "heads.result.lazy_heads: missing")
        lowest = {"settings": {}, "result": {"lowest": [[0, 0, 1, 3]] * 4}}
        self.refused(document(pod=lowest), "pod.result.lowest.0.2 is 1, expected the layer itself or the lowest")
        blocks = {"settings": {"blocks": "p.h5"}}
        self.refused(document(pod=blocks), "blocks in another file are not read")
        wrong = {"settings": {"lag": 64, "ratio": "1/6"}, "result": {"kept": 11}}
        self.refused(document(lagkv=wrong), "lagkv.result.kept: found 11, and 1/6 of 64 tokens are 10")
        self.refused(document(dynamickv={"settings": {"kernel": 4}}), "dynamickv.settings.kernel: found 4")
        self.refused(document(dynamickv={"settings": {"window": 16, "budget": 16}}), "more than the window of 16")
        uneven = {"settings": {}, "result": {"budgets": [[1, 2], [3], [4, 5], [6, 7]]}}
        self.refused(document(headkv=uneven), "headkv.result.budgets.1 has 1 entries, and the model has 2 KV heads")
        self.refused(document(headkv={"settings": {"heads": "query"}}), "headkv.settings.heads: unknown setting")
        self.refused(document(lagkv=LAG, kv_bits=8), "kv_bits: found 8, expected 16, 4 or 2")
        self.refused(document(kv_bits=4, kv_residual=-1), "kv_residual: found -1, expected 0 to 16777216")
        self.refused(document(lagkv=LAG, kv_residual=8), "and no others are stored in fewer")
        self.refused(document(), "the document holds no policy")
        self.refused({**document(lagkv=LAG), "model": {"layers": 4}}, "model.heads: found None")

    def test_number_formats(self):
        self.assertIsNone(load(document(precision={"settings": {}})).parts[0].formats)
        result = {"keys": ["16", "fp8", "q8_0", "q4_0"], "values": ["int4", "int2", "16", "fp8"]}
        by_layer = {"settings": {"prefill": "rounded"}, "result": result}
        part = load(document(precision=by_layer)).parts[0]
        self.assertEqual(part.formats, [("16", "int4"), ("fp8", "int2"), ("q8_0", "16"), ("q4_0", "fp8")])
        self.refused(document(precision=by_layer, kv_bits=4), "kv_bits of 4 and 'precision' both say how numbers")
        load(document(precision=by_layer, lagkv=LAG, kv_bits=4), section="lagkv")
        composed = load(document(precision=by_layer, lagkv=LAG, compose=["precision", "lagkv"]))
        self.assertEqual([part.name for part in composed.parts], ["lagkv", "precision"])
        for wrong, message in (
            ({"keys": ["16"] * 4}, "precision.result.values: expected a list"),
            ({**result, "values": ["16"] * 3}, "precision.result.values has 3 entries, and the model has 4 layers"),
            ({**result, "keys": ["16", "fp8", "int8", "16"]}, "precision.result.keys.2: found 'int8', expected one of 16, fp8"),
            ({**result, "keys": [16, "fp8", "fp8", "16"]}, "precision.result.keys.0: found 16, expected one of"),
            ({**result, "scales": []}, "precision.result.scales: unknown"),
        ):
            self.refused(document(precision={"settings": {}, "result": wrong}), message)
        self.refused(document(precision={"settings": {"keys": "fp4"}}), "precision.settings.keys: found 'fp4'")

    def test_says_which_baselines_it_does_not_run(self):
        for name in ("minicache", "share-values", "quest", "vertical-slash", "decoding"):
            self.refused(document(baseline={"name": name, "settings": {}}), f"{name!r} cannot be run by this package")
        for name in ("lagkv", ["snapkv"], {"snapkv": 1}, 7, None):
            self.refused(document(baseline={"name": name, "settings": {}}), "expected a baseline's name")

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "policy.json"
            self.refused(path, "policy.json: cannot be read")
            for text, message in (
                (b"{", "no JSON"),
                (b"\xff", "it is not UTF-8"),
                (b'{"schema": NaN}', "NaN is no number"),
                (b"[" * 100000, "no JSON"),
                (b"[" * 30 + b"]" * 30, "nested more than 24 levels deep"),
                (b"[]", "no policy document"),
                (b"1" * 5000, "no JSON"),
            ):
                path.write_bytes(text)
                self.refused(path, message)
            path.write_text(json.dumps(document(lagkv=LAG)))
            self.assertEqual(load(path).parts[0]["keep"], 10)
            self.assertEqual(load(str(path)).parts[0]["keep"], 10)

    def test_ratios_are_exact(self):
        for ratio, lag, kept in (("1/6", 60, 10), ("0.25", 128, 32), ("0.29", 100, 29), ("1", 7, 7), (".5", 9, 4)):
            self.assertEqual(kept_of_partition(ratio, lag), kept)
        for ratio in ("0", "2", "1/0", "x", "", "1e-1", "-1/2", "."):
            with self.assertRaises(PolicyError):
                kept_of_partition(ratio, 128)


if __name__ == "__main__":
    unittest.main()
