# SPDX-License-Identifier: Apache-2.0
"""kvpress runs the demo model with exported files and keeps, layer by layer and head by head, the positions that
`kvatlas evaluate --as kvpress` keeps."""

import unittest
from unittest import mock

import torch
from kvpress_support import as_message, demo_model, evaluated, load_press, prefilled, rows_of, unmasked
from support import (
    MODEL,
    MODEL_DIR,
    ROOT,
    dynamickv_document,
    export,
    head_document,
    headkv_document,
    lagkv_document,
    lazy_document,
    selection_document,
    threshold_document,
)
from transformers import AutoTokenizer

# At 700 tokens ExpectedAttention's cut would fall between two tokens of layer 22 whose scores differ by 7e-7 of
# themselves, which is less than what rounding does to them.
LENGTHS = (400, 1000)
SELECTIONS = (
    ("tova", {"budget": 64}),
    ("tova", {"budget": 300}),
    ("keydiff", {"budget": 64}),
    ("keydiff", {"budget": 300}),
    ("adakv", {"budget": 128}),
    ("adakv", {"budget": 200, "window": 64, "kernel": 5, "safeguard": 0.5}),
    ("chunkkv", {"budget": 130, "chunk": 20}),
    ("chunkkv", {"budget": 300, "window": 64, "kernel": 5, "chunk": 32}),
    ("criticalkv", {"budget": 128}),
    ("criticalkv", {"budget": 200, "window": 64, "kernel": 5, "share": 0.75, "epsilon": 0.01}),
    ("expected-attention", {"budget": 64}),
    ("expected-attention", {"budget": 300, "sink": 16, "future": 100, "epsilon": 0.01}),
    ("expected-attention", {"budget": 128, "covariance": False, "values": False}),
)
# KVzip's: the prompt is repeated at once, or in parts.
REPEATED = (
    {"budget": 100},
    {"budget": 64, "sink": 16, "layerwise": True},
    {"budget": 150, "chunk": 300},
    {"budget": 50, "sink": 2, "chunk": 97},
)


def kept_tokens(settings: dict, length: int) -> int:
    """The budget, or of ChunkKV whole chunks; the last one, which is kept, may be shorter."""
    if "chunk" not in settings:
        return settings["budget"]
    chunks = -(-length // settings["chunk"])
    return (chunks * settings["budget"] // length - chunks) * settings["chunk"] + length


class KvpressTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model, ids = demo_model()
        cls.prompts = {length: ids[:, :length] for length in LENGTHS}
        cls.full = {length: prefilled(cls.model, prompt) for length, prompt in cls.prompts.items()}

    def ours(self, document: dict, length: int) -> dict:
        (told,) = evaluated(MODEL, [document], self.prompts[length])
        return told

    def prefill(self, document: dict, length: int):
        """The cache as kvpress leaves it under the exported press."""
        press = load_press(export(document, "kvpress", "--length", length))
        return prefilled(self.model, self.prompts[length], press)

    def check_cut(self, document: dict, length: int, kept: list, ours: dict | None = None) -> dict:
        """kvpress cuts as the program says, and `kept` tokens a layer."""
        ours = ours or self.ours(document, length)
        cut = self.prefill(document, length)
        self.assertEqual([layer.keys.shape[2] for layer in cut.layers], kept)
        for number, (layer, full) in enumerate(zip(cut.layers, self.full[length].layers)):
            for head, rows in enumerate(rows_of(layer, full)):
                expected = ours["positions"][number][head]
                only = sorted(set(rows) - set(expected)), sorted(set(expected) - set(rows))
                self.assertEqual(rows, expected, f"layer {number}, KV head {head}: kvpress alone, we alone: {only}")
        return ours

    def test_lazy_layers(self):
        lazy = {11, 12, 13, 16, 19, 25, 26, 27}
        document = lazy_document(self.model, lazy, 4, 256)
        for length in LENGTHS:
            self.check_cut(document, length, [260 if layer in lazy else length for layer in range(30)])

    def test_threshold(self):
        for length, threshold in zip(LENGTHS, (0.8, 0.6)):
            document = threshold_document(self.model, threshold, 4, 128)
            ours = self.ours(document, length)
            self.assertTrue(0 < len(ours["lazy"]) < 30, ours["lazy"])
            # No layer is so near to the threshold that rounding could decide.
            self.assertGreater(min(abs(mass - threshold) for mass in ours["mass"]), 1e-4)
            kept = [131 if layer in ours["lazy"] else length for layer in range(30)]
            self.check_cut(document, length, kept)

    def test_lazy_heads(self):
        lazy = [[(layer * 5 + head * 3) % 7 < 3 for head in range(3)] for layer in range(30)]
        document = head_document(self.model, lazy, 16, 200)
        for length in LENGTHS:
            ours = self.ours(document, length)["positions"]
            self.prefill(document, length)
            kept = unmasked(self.model, length)
            self.assertEqual(kept, ours)
            self.assertEqual([[len(head) < length for head in layer] for layer in kept], lazy)

    def test_budgets(self):
        budgets = [40 + layer * 53 % 240 for layer in range(30)]
        document = dynamickv_document(self.model, budgets)
        for length in LENGTHS:
            self.check_cut(document, length, [budget + 16 for budget in budgets])

    def test_budgets_of_heads(self):
        for window, kernel in ((16, 7), (64, 5)):
            budgets = [[40 + (layer * 53 + head * 97) % 240 for head in range(3)] for layer in range(30)]
            document = headkv_document(self.model, budgets, window, kernel)
            for length in LENGTHS:
                ours = self.ours(document, length)["positions"]
                self.prefill(document, length)
                kept = unmasked(self.model, length)
                self.assertEqual(kept, ours)
                self.assertEqual([[len(head) - window for head in layer] for layer in kept], budgets)

    def test_partitions(self):
        for sink, lag, ratio, keep in ((16, 64, "1/4", 16), (4, 128, "1/6", 21)):
            document = lagkv_document(self.model, sink, lag, ratio)
            for length in LENGTHS:
                parts = (length - sink) // lag
                kept = sink + keep * (parts - 1) + lag + (length - sink) % lag
                self.check_cut(document, length, [kept] * 30)

    def test_selections(self):
        documents = [selection_document(self.model, name, settings) for name, settings in SELECTIONS]
        for length in LENGTHS:
            told = evaluated(MODEL, documents, self.prompts[length])
            for (name, settings), document, ours in zip(SELECTIONS, documents, told):
                with self.subTest(name=name, settings=settings, length=length):
                    if name == "adakv":
                        self.check_masked(document, length, settings["budget"], ours)
                    else:
                        self.check_cut(document, length, [kept_tokens(settings, length)] * 30, ours)

    def test_repeated_prompts(self):
        """KVzip on a text as a user's message, and on a bare text where the model has no chat template."""
        documents = [selection_document(self.model, "kvzip", settings) for settings in REPEATED]
        message = as_message((ROOT / "LICENSE").read_text(encoding="utf-8"))
        bare = AutoTokenizer.from_pretrained(MODEL_DIR)
        bare.chat_template = None
        asked = "kvpress.presses.kvzip_press.AutoTokenizer.from_pretrained"
        for length in LENGTHS:
            self.check_repeated(documents, message[:, :length])
        with mock.patch(asked, return_value=bare):
            self.check_repeated(documents, self.prompts[min(LENGTHS)])

    def check_repeated(self, documents: list, prompt: torch.Tensor):
        length = prompt.shape[1]
        for document, ours in zip(documents, evaluated(MODEL, documents, prompt)):
            settings = document["baseline"]["settings"]
            with self.subTest(settings=settings, length=length):
                prefilled(self.model, prompt, load_press(export(document, "kvpress", "--length", length)))
                kept = unmasked(self.model, length)
                self.assertEqual(kept, ours["positions"])
                of_layers = [sum(map(len, layer)) for layer in kept]
                if settings.get("layerwise"):
                    self.assertEqual(of_layers, [3 * settings["budget"]] * 30)
                self.assertEqual(sum(of_layers), 90 * settings["budget"])
                self.assertGreater(len({len(head) for layer in kept for head in layer}), 10)

    def check_masked(self, document: dict, length: int, budget: int, ours: dict):
        """kvpress masks what the program cuts: other numbers of tokens in other heads, `budget` in the mean."""
        self.prefill(document, length)
        kept = unmasked(self.model, length)
        self.assertEqual(kept, ours["positions"])
        self.assertEqual([sum(map(len, layer)) for layer in kept], [3 * budget] * 30)
        self.assertGreater(len({len(head) for layer in kept for head in layer}), 10)


if __name__ == "__main__":
    unittest.main()
