# SPDX-License-Identifier: Apache-2.0
"""Templates of the shapes that models have give what transformers' apply_chat_template gives, and so do their tokens."""

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import support
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(support.ROOT / "tests/support"))
import make_chat_cases
import tiny_checkpoint

OF_THE_CHECKPOINT = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
CASES = json.loads((support.ROOT / "tests/unit/model/data/chat_cases.json").read_text(encoding="utf-8"))


class ChatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tiny_checkpoint.write(Path(tempfile.mkdtemp()) / "tiny", seed=3)
        cls.addClassCleanup(shutil.rmtree, cls.folder.parent)
        # A template that asks for the day is told the one that kvatlas tells it.
        clock = mock.patch("transformers.utils.chat_template_utils.datetime")
        clock.start().now.return_value = make_chat_cases.DATE
        cls.addClassCleanup(clock.stop)

    def tokenizer(self, template: str, tokens: dict):
        config = tokens | {"chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"}
        (self.folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        return AutoTokenizer.from_pretrained(self.folder)

    def test_conversations(self):
        """The unit tests' expectations are transformers' own."""
        self.assertEqual({case["name"] for case in CASES["chats"]}, set(make_chat_cases.TEMPLATES))
        for case in CASES["chats"]:
            self.assertEqual(case["template"], make_chat_cases.TEMPLATES[case["name"]])
            tokenizer = self.tokenizer(case["template"], CASES["tokens"])
            for render in case["renders"]:
                with self.subTest(case["name"], messages=render["messages"]):
                    text = tokenizer.apply_chat_template(render["messages"], tokenize=False, add_generation_prompt=True)
                    self.assertEqual(text, render["text"])

    def test_the_program(self):
        """`--chat auto` runs the tokens of apply_chat_template for a user's message: the logits behind them are equal."""
        model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32).eval()
        best = {}  # logit, by the tokens of the prompt
        for name, template in make_chat_cases.TEMPLATES.items():
            for prompt in ("What is 2 + 2?", ' Say "\u4f60\u597d" <b>\n'):
                with self.subTest(name, prompt=prompt):
                    tokenizer = self.tokenizer(template, OF_THE_CHECKPOINT)
                    turns = [{"role": "user", "content": prompt}]
                    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
                    with torch.no_grad():
                        logits = model(ids["input_ids"]).logits[0, -1]
                    words = ["generate", "--model", self.folder, "--chat", "auto", "--prompt", prompt, "--new", "1", "--json"]
                    chosen, values = zip(*json.loads(support.run(*words))["top"])
                    worst = (logits[list(chosen)] - torch.tensor(values)).abs().max()
                    self.assertLess(float(worst), 1e-4)
                    best[tuple(ids["input_ids"][0].tolist())] = values[0]
        self.assertEqual(len(set(best.values())), len(best), "prompts can be told apart by these logits")
        self.assertGreater(len(best), 20)


if __name__ == "__main__":
    unittest.main()
