# SPDX-License-Identifier: Apache-2.0
"""DuoAttention's directory, read as its load_attn_pattern and sparsify_attention_heads read it (numpy alone)."""
import json
import re
import unittest
from pathlib import Path

import numpy as np
from support import export

DOCUMENTS = Path(__file__).resolve().parent.parent / "unit" / "export" / "documents"


def sparsify(heads: np.ndarray, sparsity: float, seed: int) -> np.ndarray:
    """The rule of the repository at fe93c31: a little noise, then a quantile."""
    heads = heads + np.random.default_rng(seed).uniform(0, 1e-6, heads.shape)
    threshold = np.quantile(heads, sparsity)
    if sparsity >= 1:
        threshold = 2
    if sparsity <= 0:
        threshold = -1
    return (heads >= threshold).astype(float)


class DuoAttentionTest(unittest.TestCase):
    def check(self, document: str, lazy: list, sizes: dict):
        folder = export(DOCUMENTS / document, "duo-attention")
        heads = np.clip(np.loadtxt(folder / "full_attention_heads.tsv", dtype=float, delimiter="\t"), 0, 1)
        self.assertEqual((1 - heads).astype(int).tolist(), lazy)
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual(config, sizes)
        readme = (folder / "README.txt").read_text()
        for sparsity in re.findall(r"(?:--sparsity |sparsity=)([0-9.e-]+)", readme):
            for seed in range(20):
                np.testing.assert_array_equal(sparsify(heads, float(sparsity), seed), heads)
        self.assertEqual(len(re.findall(r"sparsity[ =][0-9]", readme)), 2)

    def test_lazy_heads(self):
        lazy = [[0, 0], [1, 0], [1, 1], [0, 1], [1, 1], [0, 0]]
        self.check("heads.json", lazy, {"sink_size": 4, "recent_size": 60})

    def test_lazy_layers_are_rows_of_zeros(self):
        lazy = [[flag, flag] for flag in (0, 1, 1, 0, 1, 1)]
        self.check("lazy_layers.json", lazy, {"sink_size": 4, "recent_size": 256})

    def test_all_layers(self):
        self.check("streaming.json", [[1, 1]] * 6, {"sink_size": 4, "recent_size": 256})


if __name__ == "__main__":
    unittest.main()
