# SPDX-License-Identifier: Apache-2.0
"""The converted demo model computes in transformers what the program computes."""

import json
import unittest

import torch
from support import MODEL, MODEL_DIR, run
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPT = "The lighthouse keeper wrote down every ship that passed: its name, its flag and where it was bound."


class ModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        words = ["generate", "--model", MODEL, "--prompt", PROMPT, "--new", "12", "--ignore-eos", "--json"]
        cls.ours = json.loads(run(*words))
        cls.model = AutoModelForCausalLM.from_pretrained(MODEL_DIR).eval()
        cls.ids = AutoTokenizer.from_pretrained(MODEL_DIR)(PROMPT, return_tensors="pt").input_ids

    def test_logits(self):
        with torch.no_grad():
            logits = self.model(self.ids).logits[0, -1]
        self.assertEqual(logits.dtype, torch.float32)
        ids, values = zip(*self.ours["top"])
        self.assertEqual(ids[0], int(logits.argmax()))
        worst = (logits[list(ids)] - torch.tensor(values)).abs().max()
        self.assertLess(float(worst), 2e-3)

    def test_tokens(self):
        ones = torch.ones_like(self.ids)
        out = self.model.generate(self.ids, attention_mask=ones, max_new_tokens=12, min_new_tokens=12, do_sample=False)
        self.assertEqual(out[0, self.ids.shape[1] :].tolist(), self.ours["tokens"])


if __name__ == "__main__":
    unittest.main()
