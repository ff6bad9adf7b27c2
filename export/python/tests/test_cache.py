# SPDX-License-Identifier: Apache-2.0
"""The cache with a small random model: what it holds, how it is used, and what it refuses."""

import unittest

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, TextStreamer

import small_support as support
from kvatlas_transformers import PolicyError, load

SHAPE = {"layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 8}
TOKEN = 2 * 8 * 4
FULL = {"simlayerkv": {"settings": {"threshold": 1}}}
STREAMING = {"baseline": {"name": "streaming", "settings": {"initial": 2, "recent": 10}}}
LAG = {"lagkv": {"settings": {"sink": 2, "lag": 8, "ratio": "1/4"}}}
HEADS = {
    "heads": {
        "settings": {"initial": 1, "recent": 6},
        "result": {"lazy_heads": [[True, False], [False], [False, True], [True]]},
    }
}
POD = {
    "pod": {
        "settings": {"initial": 2, "recent": 10},
        "result": {"lowest": [[0, 0, 0, 3], [0, 0, 0, 3], [0, 0, 2, 2], [0, 1, 1, 1]]},
    }
}


def model(**changes) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.4,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **changes,
    )
    return LlamaForCausalLM(config).eval()


def prompt(length: int = 40, seed: int = 1) -> torch.Tensor:
    return torch.randint(3, 64, (1, length), generator=torch.Generator().manual_seed(seed))


class OfASmallModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = model()

    def cache(self, sections: dict, **more):
        return load(support.document(SHAPE, {**sections, **more})).cache(self.model)

    def logits(self, ids, cache=None, pieces=()):
        """Of all tokens, run in pieces that begin at these places."""
        out, ends = [], [*pieces, ids.shape[1]]
        with torch.no_grad():
            for begin, end in zip([0, *pieces], ends):
                out.append(self.model(ids[:, begin:end], past_key_values=cache, use_cache=cache is not None).logits)
        return torch.cat(out, dim=1)


class Use(OfASmallModel):
    def test_a_policy_that_cuts_nothing_changes_nothing(self):
        ids = prompt()
        expected = self.logits(ids)
        got = self.logits(ids, self.cache(FULL), [25, 26, 27, 33])
        self.assertLess((got - expected).abs().max(), 1e-4)

    def test_generates_greedily_and_by_sampling(self):
        ids = prompt()
        for how in ({"do_sample": False}, {"do_sample": True, "top_k": 5}):
            outs = []
            for cache in (self.cache(FULL), DynamicCache(config=self.model.config)):
                torch.manual_seed(3)
                out = self.model.generate(ids, past_key_values=cache, max_new_tokens=12, min_new_tokens=12, **how)
                outs.append(out.tolist())
            self.assertEqual(*outs)

    def test_streams(self):
        class Collect(TextStreamer):
            def __init__(self):
                self.tokens = []

            def put(self, value):
                self.tokens += value.view(-1).tolist()

            def end(self):
                pass

        streamer = Collect()
        out = self.model.generate(prompt(), past_key_values=self.cache(LAG), max_new_tokens=9, streamer=streamer)
        self.assertEqual(streamer.tokens, out[0].tolist())

    def test_the_model_still_takes_other_caches(self):
        fresh = model()
        ids = prompt()
        self.cache(LAG)
        self.assertEqual(self.model.config._attn_implementation, "kvatlas")
        outs = [
            one.generate(torch.cat([ids, prompt(seed=2)]), max_new_tokens=6, min_new_tokens=6, do_sample=False).tolist()
            for one in (self.model, fresh)
        ]
        self.assertEqual(*outs)

    def test_a_conversation_continues_at_true_positions(self):
        """Several tokens at once on a cut cache give what they give one by one, where nothing is cut between."""
        ids = prompt(52)
        for sections in (STREAMING, HEADS, POD, {**LAG, "kv_bits": 4}):
            with self.subTest(sections=sections):
                together, apart = self.cache(sections), self.cache(sections)
                # LagKV cuts at 42 and 50 tokens, and at the end of a pass.
                one = self.logits(ids, together, [40, 42, 50])
                other = self.logits(ids, apart, [40, *range(41, 52)])
                self.assertLess((one - other).abs().max(), 1e-4)
                self.assertEqual(together.kept(), apart.kept())
                self.assertEqual(together.get_seq_length(), 52)

    def test_generate_continues_a_cut_cache(self):
        cache = self.cache(STREAMING)
        first = self.model.generate(prompt(), past_key_values=cache, max_new_tokens=4, min_new_tokens=4)
        turn = torch.cat([first, prompt(5, seed=4)], dim=1)
        out = self.model.generate(turn, past_key_values=cache, max_new_tokens=4, min_new_tokens=4)
        self.assertEqual(out.shape[1], 40 + 4 + 5 + 4)
        self.assertEqual(cache.kept()[0][0], [0, 1, *range(30, 52)])

    def test_is_reset_for_another_sequence(self):
        cache = self.cache(LAG)
        before = self.logits(prompt(), cache, [30])
        cache.reset()
        self.assertEqual(cache.get_seq_length(), 0)
        self.assertTrue(torch.equal(before, self.logits(prompt(), cache, [30])))


class Memory(OfASmallModel):
    def check(self, sections: dict, tokens_per_head, pieces=(30,), length=36):
        cache = self.cache(sections)
        self.logits(prompt(length), cache, pieces)
        self.assertEqual([[len(head) for head in layer] for layer in cache.kept()], tokens_per_head)
        self.assertEqual(cache.bytes(), sum(map(sum, tokens_per_head)) * TOKEN)

    def test_holds_what_is_kept_and_no_more(self):
        self.check(FULL, [[36, 36]] * 4)
        self.check(STREAMING, [[18, 18]] * 4)
        self.check(HEADS, [[13, 36], [36, 36], [36, 13], [13, 13]])
        # 30 tokens: sink 2, 2 of each of two partitions, one whole one, 4 more; at 34 one more is cut.
        self.check(LAG, [[2 + 2 * 3 + 8 + 2] * 2] * 4, pieces=[30, 31, 32, 33, 34, 35])
        budgets = {"settings": {"window": 4, "budget": 8}, "result": {"budgets": [1, 2, 3, 40]}}
        self.check({"dynamickv": budgets}, [[11, 11], [12, 12], [13, 13], [36, 36]])
        heads = {"settings": {"window": 4, "budget": 8}, "result": {"budgets": [[1, 2], [3, 4], [0, 40], [5, 5]]}}
        self.check({"headkv": heads}, [[11, 12], [13, 14], [10, 36], [15, 15]])

    def test_values_out_of_a_larger_array_are_copied(self):
        """Fused projections hand over views."""
        cache = self.cache(STREAMING)
        fused = torch.randn(1, 2, 30, 24)
        module = self.model.model.layers[0].self_attn
        from kvatlas_transformers import attention

        for layer in range(4):
            key, value = cache.update(fused[..., :8].clone(), fused[..., 8:16], layer)
            attention.attention(module, torch.randn(1, 4, 30, 8), key, value, None, scaling=1.0)
        self.assertEqual(cache.bytes(), 4 * 2 * 12 * TOKEN)

    def test_shared_keys_are_freed(self):
        cache = self.cache(POD)
        self.logits(prompt(36), cache, [30, 31])
        everything, distant = 36 * 4 * 2, 36 - 12
        # KV head 0 borrows in layers 1 and 2, KV head 1 (of query heads 2 and 3) reads its own keys but in layer 3.
        self.assertEqual(cache.bytes(), everything * TOKEN - 3 * distant * TOKEN // 2)
        self.assertEqual(cache.lengths(), [36] * 4)

    def test_quantised_bytes(self):
        for bits in (4, 2):
            cache = self.cache(STREAMING, kv_bits=bits)
            self.logits(prompt(40), cache)
            codes = 2 * 12 * 8 * bits // 8
            scales = 4 * (8 + 12)  # of 8 channels for up to 32 tokens, and of 12 tokens for up to 32 channels
            self.assertEqual(cache.bytes(), 4 * 2 * (codes + scales))

    def test_later_tokens_are_quantised_in_groups_of_32(self):
        for residual, coded in ((0, 72), (5, 67), (50, 0)):
            cache = self.cache({}, kv_bits=4, kv_residual=residual)
            self.logits(prompt(80), cache, range(40, 80))
            for layer in cache.bands:
                for band in layer:
                    self.assertEqual([band.keys.codes.shape[1], band.values.codes.shape[1]], [coded, coded])
                    self.assertEqual(len(band.keys), 80)
                    # A group of 32 tokens and a shorter one at the cut, and then one of 32.
                    at_cut = max(0, 40 - residual)
                    self.assertEqual(band.keys.scales.shape[1], -(-at_cut // 32) + (coded - at_cut) // 32)
                    self.assertEqual(band.keys.all().shape, band.values.all().shape)

    def test_the_first_token_behind_the_prompt_decides(self):
        cache = self.cache({"simlayerkv": {"settings": {"threshold": 0, "initial": 2, "recent": 10}}})
        self.logits(prompt(40), cache, [30])
        cache.reset()
        self.logits(prompt(30), cache)
        self.assertEqual((cache.lengths(), cache.decided()), ([30] * 4, {}))
        with torch.no_grad():
            self.model(prompt(1), past_key_values=cache)
        self.assertEqual((cache.lengths(), cache.decided()["lazy"]), ([12] * 4, [0, 1, 2, 3]))


    def test_budgets_are_told_where_no_layer_is_cut_by_them(self):
        lazy = {"settings": {"initial": 2, "recent": 10}, "result": {"lazy_heads": [[True]] * 4}}
        budgets = {"settings": {"window": 4, "budget": 12}}
        cache = self.cache({"heads": lazy, "dynamickv": budgets}, compose=["heads", "dynamickv"])
        self.logits(prompt(40), cache)
        self.assertEqual((cache.lengths(), sum(cache.decided()["budgets"])), ([12] * 4, 8 * 4))


class Refusals(OfASmallModel):
    def refused(self, message: str, call, *args, **how) -> None:
        with self.assertRaises(PolicyError) as caught:
            call(*args, **how)
        self.assertIn(message, str(caught.exception))

    def test_models_of_another_shape(self):
        for what, count in (("layers", 5), ("heads", 8), ("kv_heads", 4), ("head_dim", 16)):
            given = {**SHAPE, what: count}
            self.refused(f"of {count} {what.replace('_', ' ')}", load(support.document(given, LAG)).cache, self.model)

    def test_batches_padding_and_beams(self):
        generate = self.model.generate
        self.refused("a batch of 2", generate, prompt().repeat(2, 1), past_key_values=self.cache(LAG), max_new_tokens=2)
        padded = torch.ones(1, 40, dtype=torch.long)
        padded[0, :3] = 0
        for mask in (padded, padded.flip(1)):
            self.refused("padded", self.model, prompt(), attention_mask=mask, past_key_values=self.cache(LAG))
        self.refused(
            "a batch of 2", generate, prompt(), past_key_values=self.cache(LAG), num_beams=2, max_new_tokens=2
        )
        self.refused("cannot be shortened", self.cache(LAG).crop, -1)

    def test_another_attention_function(self):
        cache = self.cache(LAG)
        self.model.set_attn_implementation("sdpa")
        self.refused("did not call kvatlas' attention function", self.model, prompt(), past_key_values=cache)


if __name__ == "__main__":
    unittest.main()
