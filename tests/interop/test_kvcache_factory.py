# SPDX-License-Identifier: Apache-2.0
"""KVCache-Factory's HeadKV file: the capacities that run_longbench.py computes are the policy's (torch alone)."""
import json
import random
import re
import unittest
from pathlib import Path

import numpy as np
import torch
from support import export

DOCUMENTS = Path(__file__).resolve().parent.parent / "unit" / "export" / "documents"


def capacities(folder: Path, layers: int, heads: int) -> list:
    """The arithmetic of run_longbench.py at c97f9d7, with the options that README.txt gives."""
    options = dict(re.findall(r"--(\w+) (\S+)", (folder / "README.txt").read_text().split("\nWhat")[0]))
    cap, beta = int(options["max_capacity_prompts"]), float(options["head_beta"])
    with open(folder / "headkv.json", encoding="utf-8") as file:
        scores = [np.mean(item[1]) for item in json.loads(file.readline()).items()]
    share = torch.tensor(np.array(scores) / sum(scores)).reshape(layers, heads)
    pool = (cap // beta) * layers * heads
    return torch.round(share * pool + (cap - cap // beta)).int().tolist()


def head_budgets_document(budgets: list) -> dict:
    document = budgets_document([1] * len(budgets))
    document["headkv"] = {"settings": {"budget": 300, "window": 8, "pooling": "max"}, "result": {"budgets": budgets}}
    del document["dynamickv"]
    return document


def budgets_document(budgets: list) -> dict:
    document = json.loads((DOCUMENTS / "budgets.json").read_text())
    document["model"]["layers"] = len(budgets)
    document["dynamickv"]["result"]["budgets"] = budgets
    return document


class KvcacheFactoryTest(unittest.TestCase):
    def test_budgets(self):
        folder = export(DOCUMENTS / "budgets.json", "kvcache-factory")
        budgets = json.loads((DOCUMENTS / "budgets.json").read_text())["dynamickv"]["result"]["budgets"]
        self.assertEqual(capacities(folder, 6, 4), [[budget] * 4 for budget in budgets])

    def test_budgets_whose_mean_is_no_whole_number(self):
        generator = random.Random(1)
        for _ in range(15):
            budgets = [generator.randint(0, 900) for _ in range(7)]
            budgets[0] = 900
            folder = export(budgets_document(budgets), "kvcache-factory")
            self.assertEqual(capacities(folder, 7, 4), [[budget] * 4 for budget in budgets])

    def test_budgets_of_heads(self):
        generator = random.Random(2)
        for _ in range(15):
            budgets = [[generator.randint(0, 900) for _ in range(2)] for _ in range(7)]
            budgets[0][0] = 900 + sum(map(sum, budgets[1:])) % 2
            folder = export(head_budgets_document(budgets), "kvcache-factory")
            if sum(map(sum, budgets)) % 14 == 7:
                continue  # half a token: see below
            self.assertEqual(capacities(folder, 7, 4), [[row[head // 2] for head in range(4)] for row in budgets])

    def test_a_mean_of_half_a_token_costs_one_token(self):
        folder = export(budgets_document([100, 201]), "kvcache-factory")
        self.assertEqual(capacities(folder, 2, 4), [[100] * 4, [202, 202, 201, 201]])

    def test_lazy_heads(self):
        folder = export(DOCUMENTS / "heads.json", "kvcache-factory", "--length", 4096)
        lazy = [[0, 0], [1, 0], [1, 1], [0, 1], [1, 1], [0, 0]]
        window = 8
        expected = [[4 + 60 - window if row[head // 2] else 4096 for head in range(4)] for row in lazy]
        self.assertEqual(capacities(folder, 6, 4), expected)


if __name__ == "__main__":
    unittest.main()
