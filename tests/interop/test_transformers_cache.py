# SPDX-License-Identifier: Apache-2.0
"""kvatlas_transformers loads what is exported for it, and the cache holds what the policy names."""
import json
import unittest
from pathlib import Path

import kvatlas_transformers
import torch
from support import export, small_llama

DOCUMENTS = Path(__file__).resolve().parent.parent / "unit" / "export" / "documents"

LENGTH = 600


class TransformersCacheTest(unittest.TestCase):
    def kept(self, document: str) -> list:
        """[layer][KV head] how many tokens the cache holds once the first token was generated."""
        folder = export(DOCUMENTS / document, "transformers-cache")
        text = json.loads((folder / "policy.json").read_text())
        text["model"]["head_dim"] = 16
        (folder / "policy.json").write_text(json.dumps(text))
        model = small_llama(6, 4, 2)
        ids = torch.randint(1, 128, (1, LENGTH), generator=torch.Generator().manual_seed(1))
        cache = kvatlas_transformers.load(str(folder / "policy.json")).cache(model)
        model.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=cache, max_new_tokens=2,
                       min_new_tokens=2, do_sample=False, pad_token_id=0)
        return [[len(positions) for positions in heads] for heads in cache.kept()]

    def test_lazy_heads(self):
        lazy = [[0, 0], [1, 0], [1, 1], [0, 1], [1, 1], [0, 0]]
        kept = self.kept("heads.json")
        for heads, flags in zip(kept, lazy):
            for tokens, flag in zip(heads, flags):
                self.assertEqual(tokens, 64 + 1 if flag else LENGTH + 1)

    def test_budgets(self):
        kept = self.kept("budgets.json")
        self.assertEqual(kept, [[budget + 16 + 1] * 2 for budget in (240, 100, 80, 60, 140, 52)])

    def test_lag(self):
        tokens = LENGTH + 1
        partitions = (tokens - 16) // 128
        length = 16 + 21 * (partitions - 1) + 128 + (tokens - 16) % 128
        self.assertEqual(self.kept("lag.json"), [[length] * 2] * 6)

    def test_composition(self):
        tokens = LENGTH + 1
        partitions = (tokens - 16) // 128
        length = 16 + 32 * (partitions - 1) + 128 + (tokens - 16) % 128
        lazy = [False, True, True, False, True, False]
        self.assertEqual(self.kept("composed.json"), [[260 + 1 if flag else length] * 2 for flag in lazy])


if __name__ == "__main__":
    unittest.main()
