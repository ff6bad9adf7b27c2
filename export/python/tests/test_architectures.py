# SPDX-License-Identifier: Apache-2.0
"""Small random models of other architectures: nothing cut gives the model's own logits, softcaps and sliding windows
included, and a policy runs."""

import unittest
import unittest.mock

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache

import small_support as support
from kvatlas_transformers import load
from kvatlas_transformers.band import Band

COMMON = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 24
MODELS = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 16},
    "Mistral": {"sliding_window": WINDOW},
    "Phi3": {"sliding_window": WINDOW},
    "Gemma2": {"head_dim": 16, "sliding_window": WINDOW, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 4},
    "Gemma3": {"head_dim": 16, "sliding_window": WINDOW},
}
POLICY = {
    "simlayerkv": {
        "settings": {"initial": 2, "recent": 8},
        "result": {"lazy_heads": [[True, False], [False], [True], [False]]},
    },
    "lagkv": {"settings": {"sink": 2, "lag": 8}},
    "pod": {"settings": {"initial": 2, "recent": 8, "delta": 0.3}},
    "compose": ["simlayerkv", "lagkv", "pod"],
    "kv_bits": 4,
}


class Architectures(unittest.TestCase):
    def make(self, name: str):
        torch.manual_seed(0)
        config_class = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")
        config = config_class(**COMMON, **MODELS[name])
        shape = {"layers": 4, "heads": 4, "kv_heads": 2, "head_dim": getattr(config, "head_dim", None) or 12}
        # transformers' sdpa lacks the softcap.
        attention = "eager" if name == "Gemma2" else "sdpa"
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval(), shape

    def run_pieces(self, model, ids, cache, pieces) -> torch.Tensor:
        with torch.no_grad():
            logits = [
                model(ids[:, begin:end], past_key_values=cache).logits
                for begin, end in zip([0, *pieces], [*pieces, ids.shape[1]])
            ]
        return torch.cat(logits, dim=1)

    def test_nothing_cut_changes_nothing(self):
        for name in MODELS:
            with self.subTest(model=name):
                model, shape = self.make(name)
                ids = torch.randint(3, 64, (1, 60))
                with torch.no_grad():
                    expected = model(ids, use_cache=False).logits
                full = {"simlayerkv": {"settings": {"threshold": 1, "identify": "prefill"}}}
                cache = load(support.document(shape, full)).cache(model)
                got = self.run_pieces(model, ids, cache, [40, *range(41, 50), 55])
                tolerance = 1e-5 * float(expected.abs().max())
                self.assertLess((got - expected).abs().max(), tolerance)
                usual = self.run_pieces(model, ids, DynamicCache(config=model.config), [40, 50])
                self.assertLess((usual - expected).abs().max(), tolerance)
                if name in ("Mistral", "Phi3"):
                    # Tokens that the model's own window hides are not held: the last pass was of 5 tokens.
                    self.assertEqual(cache.lengths(), [WINDOW - 1 + 5] * 4)

    def test_a_policy_runs(self):
        for name in MODELS:
            with self.subTest(model=name):
                model, shape = self.make(name)
                cache = load(support.document(shape, POLICY)).cache(model)
                ids = torch.randint(3, 64, (1, 50))
                out = model.generate(ids, past_key_values=cache, max_new_tokens=20, min_new_tokens=20)
                self.assertEqual(out.shape[1], 70)
                self.assertEqual(cache.get_seq_length(), 69)
                kept = cache.kept()
                self.assertEqual(kept[2][0], [0, 1, *range(42, 69)])
                self.assertEqual(len(kept[0][1]), 2 + 7 * 2 + 8 + 3)

    def test_what_a_window_hides_is_forgotten_and_nothing_else(self):
        """Also where each head keeps other tokens."""
        model, shape = self.make("Gemma2")
        snapkv = {"baseline": {"name": "snapkv", "settings": {"window": 4, "budget": 12, "kernel": 1}}}
        policy = load(support.document(shape, snapkv))
        ids = torch.randint(3, 64, (1, 48))
        pieces = [40, *range(41, 48)]
        cache = policy.cache(model)
        got = self.run_pieces(model, ids, cache, pieces)
        with unittest.mock.patch.object(Band, "forget", lambda *args: None):
            hoards = policy.cache(model)
            expected = self.run_pieces(model, ids, hoards, pieces)
        self.assertLess((got - expected).abs().max(), 1e-5 * float(expected.abs().max()))
        self.assertEqual(hoards.lengths(), [20] * 4)
        self.assertEqual([cache.lengths()[layer] for layer in (1, 3)], [20, 20])
        kept = cache.kept()
        for layer in (0, 2):
            self.assertNotEqual(kept[layer][0], kept[layer][1])
            self.assertLess(len(kept[layer][0]), 20)
            # One head at least has nothing left to forget, and all hold what the window sees.
            self.assertTrue(any(head[0] >= 48 - WINDOW for head in kept[layer]))
            for head, whole in zip(kept[layer], hoards.kept()[layer]):
                self.assertEqual([j for j in whole if j >= 48 - WINDOW], [j for j in head if j >= 48 - WINDOW])


if __name__ == "__main__":
    unittest.main()
