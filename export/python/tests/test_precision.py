# SPDX-License-Identifier: Apache-2.0
"""Number formats: what they make of numbers, as gguf and torch do it, and what a cache holds and attends to."""

import unittest

import gguf
import torch

import small_support as support
from kvatlas_transformers import PolicyError, attention, load
from kvatlas_transformers.precision import Blocks, spared, stored
from test_cache import LAG, STREAMING, model, prompt

SHAPE = {"layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 64}
BYTES = {"16": 4 * 64, "fp8": 64, "q8_0": 64 + 2 * 2, "q4_0": 32 + 2 * 2}  # of a row; float32 stays as it is


def by_gguf(rows: torch.Tensor, word: str) -> torch.Tensor:
    kind = gguf.GGMLQuantizationType[word.upper()]
    return torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(rows.numpy(), kind), kind))


def by_layer(keys: list[str], values: list[str], **settings) -> dict:
    return {"precision": {"settings": settings, "result": {"keys": keys, "values": values}}}


class Formats(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)

    def rows(self, channels: int) -> torch.Tensor:
        rows = torch.randn(2, 40, channels)
        rows[0, 1], rows[0, 2, 1:], rows[1, 3] = 0, 0, rows[1, 3] * 1000
        rows[1, 4] = torch.arange(channels) % 32 / 8  # ties
        return rows

    def test_blocks_are_those_of_gguf(self):
        for word in ("q8_0", "q4_0"):
            for channels in (32, 96, 160):  # none is rotated
                rows = self.rows(channels)
                for of_keys in (True, False):
                    self.assertTrue(torch.equal(stored(rows, word, of_keys, 40).all(), by_gguf(rows, word)))

    def test_short_blocks_are_filled_up(self):
        rows = self.rows(40)
        filled = torch.nn.functional.pad(rows, (0, 24))
        for word in ("q8_0", "q4_0"):
            self.assertTrue(torch.equal(stored(rows, word, True, 40).all(), by_gguf(filled, word)[..., :40]))

    def test_heads_of_64_channels_are_rotated(self):
        for word in ("q8_0", "q4_0"):
            for channels, of_keys, order in ((64, True, 64), (128, True, 128), (128, False, 64), (192, True, 64)):
                rows = self.rows(channels)
                numbers = torch.arange(order)
                both = numbers[:, None] & numbers
                signs = sum((both >> bit) & 1 for bit in range(8)) % 2
                matrix = torch.block_diag(*[(1 - 2 * signs) / order**0.5] * (channels // order)).float()
                expected = by_gguf((rows @ matrix).contiguous(), word) @ matrix
                got = stored(rows, word, of_keys, 40).all()
                self.assertEqual(Blocks(8, channels, of_keys).order, order)
                # Where the other order of a sum tips a number to the next code, it differs by a step.
                close = (got - expected).abs().amax(-1) < 1e-5 * expected.abs().amax(-1).clamp(min=1)
                self.assertGreater(close.float().mean(), 0.95)

    def test_fp8_is_cut_to_its_largest_number(self):
        rows = self.rows(24)
        rows[0, 5, :3] = torch.tensor([448.1, -1e9, 2.0**-10])
        got = stored(rows, "fp8", True, 40).all()
        self.assertTrue(torch.equal(got, rows.clamp(-448, 448).to(torch.float8_e4m3fn).float()))
        self.assertEqual(got[0, 5, :3].tolist(), [448, -448, 0])  # half of the smallest number: to even

    def test_rows_that_stay_keep_their_values(self):
        data, more = self.rows(64), torch.randn(2, 3, 64)
        for word in ("fp8", "q8_0", "q4_0"):
            rows = stored(data, word, True, 40).append(more)
            self.assertTrue(torch.equal(rows.all()[:, 40:], stored(more, word, True, 3).all()))
            index = torch.tensor([[0, 3, 39, 41], [1, 2, 4, 42]])
            taken = rows.take(index)
            self.assertEqual(len(taken), 4)
            for head in range(2):
                self.assertTrue(torch.equal(taken.all()[head], rows.all()[head, index[head]]))
                self.assertTrue(torch.equal(taken.heads(head, 1).all()[0], taken.all()[head]))
            self.assertEqual(rows.all().dtype, torch.float32)
            self.assertEqual(stored(data.bfloat16(), word, True, 40).all().dtype, torch.bfloat16)


class Policies(unittest.TestCase):
    def test_layers_that_stay_at_16_bits(self):
        layers = [("fp8", "fp8")] * 4
        self.assertEqual([layer[0] for layer in spared(layers, "0:-1")], ["16", "fp8", "fp8", "16"])
        self.assertEqual(spared(layers, ""), layers)
        for wrong in ("4", "-5", "0:", "x"):
            with self.assertRaisesRegex(PolicyError, "the model has 4 layers"):
                spared(layers, wrong)

    def test_what_the_cache_lacks_is_refused(self):
        for settings, why in (({"keys": "q5_0"}, "no format 'q5_0', only 16, fp8"), ({"queries": "fp8"}, "queries=fp8")):
            with self.assertRaisesRegex(PolicyError, why):
                load(support.document(SHAPE, {"precision": {"settings": settings, "result": {}}})).cache(model(head_dim=64))


class Caches(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = model(head_dim=64)

    def run_in(self, sections: dict, length: int, pieces=()) -> tuple:
        cache = load(support.document(SHAPE, sections)).cache(self.model)
        outs, ids = [], prompt(length)
        with torch.no_grad():
            for begin, end in zip([0, *pieces], [*pieces, length]):
                outs.append(self.model(ids[:, begin:end], past_key_values=cache).logits)
        return cache, torch.cat(outs, dim=1)

    def test_bytes(self):
        keys, values = ["16", "fp8", "q8_0", "q4_0"], ["q4_0", "fp8", "16", "q8_0"]
        for more, tokens in (({}, 36), (STREAMING, 12 + 6)):
            sections = {**by_layer(keys, values), **more, "compose": ["precision", *more]}
            cache, _ = self.run_in(sections, 36, [30, 31])
            self.assertEqual(cache.bytes(), sum(BYTES[word] for word in keys + values) * 2 * tokens)

    def test_tokens_round_by_themselves_or_in_groups(self):
        """Of 40 tokens at the cut and 40 later ones, int4 rounds 32 of the later ones together."""
        cache, _ = self.run_in(by_layer(["int4", "fp8"] * 2, ["q8_0", "int2"] * 2), 80, [40, *range(41, 80)])
        exact, _ = self.run_in(by_layer(["16"] * 4, ["16"] * 4), 80, [40, *range(41, 80)])
        for layer, ((band,), (plain,)) in enumerate(zip(cache.bands, exact.bands)):
            self.assertEqual((len(band.keys), len(band.values)), (80, 80))
            in_groups, by_token = (band.keys, band.values) if layer % 2 == 0 else (band.values, band.keys)
            self.assertEqual(in_groups.codes.shape[1], 72)
            self.assertEqual([codes.shape[1] for codes in by_token.codes], [80] * len(by_token.codes))
            if layer == 0:  # whose keys and values depend on the tokens alone
                whole = plain.values.data
                self.assertTrue(torch.equal(by_token.all(), stored(whole, "q8_0", False, 80).all()))

    def rounding_logits(self, ids: torch.Tensor, keys: list[str], values: list[str]) -> torch.Tensor:
        """Of the model without a cache, where each layer's keys and values are rounded before it attends to them."""

        def rounding(module, query, key, value, mask, **kwargs):
            layer, tokens = module.layer_idx, key.shape[2]
            key = stored(key[0], keys[layer], True, tokens).all()[None]
            value = stored(value[0], values[layer], False, tokens).all()[None]
            return attention.attention(module, query, key, value, mask, **kwargs)

        attention.AttentionInterface.register("kvatlas-rounding", rounding)
        self.model.set_attn_implementation("kvatlas-rounding")
        with torch.no_grad():
            return self.model(ids, use_cache=False).logits

    def test_every_token_attends_to_what_is_stored(self):
        keys, values = ["q8_0", "fp8", "16", "q4_0"], ["q4_0", "16", "q8_0", "fp8"]
        expected = self.rounding_logits(prompt(46), keys, values)
        _, got = self.run_in(by_layer(keys, values, prefill="rounded"), 46, [40, 41, 44])
        self.assertLess((got - expected).abs().max(), 1e-4)

    def test_a_prompt_attends_to_what_is_stored_if_it_is_asked_for(self):
        keys, values = ["int4", "fp8", "16", "int2"], ["int2", "16", "int4", "fp8"]
        rounded = self.rounding_logits(prompt(40), keys, values)
        exact = self.rounding_logits(prompt(40), ["16"] * 4, ["16"] * 4)
        self.assertGreater((rounded - exact).abs().max(), 0.1)
        for prefill, expected in (("rounded", rounded), ("exact", exact)):
            _, got = self.run_in(by_layer(keys, values, prefill=prefill), 40)
            self.assertLess((got - expected).abs().max(), 1e-4)

    def test_what_decides_while_decoding_cannot_round_the_prompt(self):
        lazy = {"simlayerkv": {"settings": {"initial": 2, "recent": 10}}, "compose": ["simlayerkv", "precision"]}
        rounding = {"precision": {"settings": {"prefill": "rounded"}}}
        with self.assertRaisesRegex(PolicyError, "decides while decoding cannot change how the prompt is read"):
            load(support.document(SHAPE, lazy | rounding)).cache(self.model)
        lazy["simlayerkv"]["settings"]["identify"] = "prefill"
        load(support.document(SHAPE, lazy | rounding)).cache(self.model)

    def test_composes(self):
        """What is kept does not depend on the formats where the prompt alone decides."""
        for section in (STREAMING, LAG):
            sections = {**section, **by_layer(["fp8", "q8_0"] * 2, ["q4_0", "int4"] * 2)}
            sections["compose"] = list(sections)
            cache, _ = self.run_in(sections, 40)
            plain, _ = self.run_in(section, 40)
            self.assertEqual(cache.kept(), plain.kept())
            self.assertLess(cache.bytes(), plain.bytes() / 3)


if __name__ == "__main__":
    unittest.main()
