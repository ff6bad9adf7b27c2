# SPDX-License-Identifier: Apache-2.0
"""kvatlas.evaluate of a transformers model in memory: a method of ten lines beside those that are built in, and what the
program itself finds of the same prompts."""

import json
import logging
import pathlib
import re
import tempfile
import textwrap
import unittest

import capture_support  # noqa: F401 finds the package
import kvatlas
import support
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

BUDGET = 96
HOW = {"tasks": ["passkey:haystack=prose", "needle"], "lengths": [260], "depths": [0.5], "seeds": 3}


def keydiff(keys, values, queries, positions, layer):
    """The less a key is like the mean of all, the more it counts."""
    mean = torch.nn.functional.normalize(keys, dim=-1).mean(1, keepdim=True)
    return -torch.nn.functional.cosine_similarity(keys, mean, dim=-1)


def digits(interval):
    """As many digits as certify prints."""
    return interval and {name: float(f"{value:.9g}") for name, value in interval.items()}


class Evaluate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = AutoModelForCausalLM.from_pretrained(support.MODEL_DIR, dtype=torch.float32).eval()
        cls.tokenizer = AutoTokenizer.from_pretrained(support.MODEL_DIR)

    def evaluate(self, **given) -> kvatlas.Answer:
        return kvatlas.evaluate(self.model, tokenizer=self.tokenizer, **given)

    def test_a_method_of_ones_own_beside_others(self):
        built_in, snapkv = f"keydiff:budget={BUDGET}", f"snapkv:budget={BUDGET}"
        answer = self.evaluate(policies=[built_in, snapkv], scorers={"mine": keydiff}, budget=BUDGET, **HOW)
        full, theirs, other, mine = answer.document["policies"]
        self.assertEqual([full["policy"], theirs["policy"], other["policy"], mine["policy"]], ["full", built_in, snapkv, "mine"])
        self.assertEqual({**mine, "policy": ""}, {**theirs, "policy": ""})
        self.assertEqual((full["samples"], full["texts"]), (6, 6))
        self.assertEqual(set(mine["tasks"]), set(HOW["tasks"]))
        self.assertLess(mine["kept_share"], 0.5)
        self.assertLess(mine["loss"]["low"], mine["loss"]["mean"])
        self.assertGreater(mine["loss"]["high"], mine["loss"]["mean"])
        self.assertEqual(list(answer.table()["policy"]), ["full", built_in, snapkv, "mine"])
        self.assertEqual(len(answer.table("needle")), 4)
        self.assertIn("<svg", answer.plot().svg)
        self.assertEqual(self.model.config._attn_implementation, "sdpa")

    def test_the_program_finds_the_same(self):
        """Of the same tokens: scores, losses, their intervals and bytes."""
        policies = [f"{method}:budget={BUDGET}" for method in ("keydiff", "snapkv", "criticalkv", "kvzip")]
        policies.append("simlayerkv:threshold=0.9,recent=64")
        lines = list(kvatlas.prompts.prompts_of(None, HOW["tasks"], self.tokenizer, [260], [0.5], 3, 0, False, 0))
        with tempfile.TemporaryDirectory(prefix="kvatlas-interop-") as folder:
            path = pathlib.Path(folder) / "prompts.jsonl"
            members = ("id", "task", "tokens", "answers", "group")
            path.write_text("".join(json.dumps({name: getattr(line, name) for name in members}) + "\n" for line in lines))
            here = self.evaluate(policies=policies, prompts=path, new=12).document["policies"]
            there = kvatlas.evaluate(support.MODEL, policies[0], policies[1:], prompts=path, new=12, time_steps=0).document["policies"]
        for mine, theirs in zip(here, there):
            with self.subTest(theirs["policy"]):
                self.assertEqual((mine["samples"], mine["texts"]), (theirs["samples"], theirs["texts"]))
                self.assertEqual(digits(mine["score"]), digits(theirs["score"]))
                self.assertEqual(digits(mine.get("loss")), digits(theirs["loss"] if "loss" in mine else None))
                self.assertAlmostEqual(mine["kept_share"], theirs["kept_share"], places=3)

    def test_policies_have_names_of_the_caller_s(self):
        document = {"schema": "kvatlas.policy/1.0", "model": {"layers": 30, "heads": 9, "kv_heads": 3, "head_dim": 64}}
        for name, recent in (("streaming", 64), ("window", 32)):
            document["baseline"] = {"name": name, "settings": {"recent": recent}}
            document["lagkv"] = {"settings": {"lag": recent}}
            answer = self.evaluate(policies={"one": "tova:budget=64", "two": document}, tasks="passkey", lengths=[200], depths=[0.5], seeds=1)
            self.assertEqual([row["policy"] for row in answer.rows()], ["full", "one", "two baseline", "two lagkv"])

    def test_the_page_s_example_runs(self):
        page = (support.ROOT / "docs/python.md").read_text("utf-8")
        example = textwrap.dedent(re.search(r"## A method in ten lines\n\n((?:    .*\n|\n)+)", page)[1])
        self.assertLessEqual(len(example.strip().splitlines()), 20)
        names: dict = {}
        exec(example.replace('"org/model"', repr(str(support.MODEL_DIR))), names)
        self.assertEqual([row["policy"] for row in names["answer"].rows()][-1], "mine")

    def test_what_is_wrong_is_said(self):
        prompt = [{"id": "a", "text": "One two three", "answers": ["four"]}]
        for message, given in {
            "answers are texts": {"tokenizer": None, "policies": ["snapkv"], "prompts": prompt},
            "no prompts with answers": {"policies": ["snapkv"], "prompts": ["One two three"]},
            "nothing to evaluate": {"prompts": prompt},
            "scorers need budget=": {"scorers": {"mine": keydiff}, "prompts": prompt},
            "two policies are called 'full'": {"scorers": {"full": keydiff}, "budget": 8, "prompts": prompt},
            "'quest' cannot be run": {"policies": ["quest"], "prompts": prompt},
            "mine: scores of layer 0": {"scorers": {"mine": lambda *given: None}, "budget": 2, "prompts": prompt},
            "there is no policy": {"policies": ["nonsense:budget=8"], "prompts": prompt},
        }.items():
            with self.subTest(message), self.assertRaisesRegex(kvatlas.KvatlasError, re.escape(message)):
                kvatlas.evaluate(self.model, **({"tokenizer": self.tokenizer} | given))

    def test_runs_of_other_tools_are_answers_too(self):
        folder = support.ROOT / "tests/golden/data/certify/lm-eval"
        answer = kvatlas.certify(folder / "kv4", full=folder / "full", filter="strict", max_loss=5)
        self.assertFalse(answer.met)
        self.assertEqual(len(answer.table()), 1)
        self.assertIn("loss_high", answer.table().columns)
        self.assertTrue(kvatlas.certify([folder / "kv4"], [folder / "full"], filter="strict", max_loss=30).met)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    unittest.main()
