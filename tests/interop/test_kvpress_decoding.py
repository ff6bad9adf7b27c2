# SPDX-License-Identifier: Apache-2.0
"""kvpress's DecodingPress and `decoding` hold the same tokens, layer by layer and head by head, while the demo model
generates."""

import unittest

import torch
from kvpress import DecodingPress, KeyDiffPress, SnapKVPress, TOVAPress
from kvpress_support import demo_model, evaluated, places_among
from support import MODEL
from transformers import DynamicCache

PROMPT = 200  # tokens
NEW = 45
# kvpress leaves the tokens in the order of their scores, so after a choice its pooling has other neighbours: nothing is
# pooled here. Of l2, equal tokens have keys of equal length in the first layer, but for their rounding: left out.
CASES = (
    ("keydiff", {"budget": 64, "every": 8}, KeyDiffPress()),
    ("keydiff", {"budget": 150, "every": 1}, KeyDiffPress()),
    ("tova", {"budget": 64, "every": 8}, TOVAPress()),
    ("tova", {"budget": 120, "every": 1}, TOVAPress()),
    ("snapkv", {"budget": 64, "every": 9, "window": 1, "kernel": 1}, SnapKVPress(window_size=1, kernel_size=1)),
    ("snapkv", {"budget": 80, "every": 20, "window": 8, "kernel": 1}, SnapKVPress(window_size=8, kernel_size=1)),
)


class PlacedDecodingPress(DecodingPress):
    """kvpress 0.5.5 hands its scorers the rotation of the current token alone, as if all queries of the buffer stood
    where it stands. This gives them the rotation of each."""

    def forward_hook(self, module, args, kwargs, output):
        self.__dict__.setdefault("rotations", {}).setdefault(module.layer_idx, []).append(kwargs["position_embeddings"])
        return super().forward_hook(module, args, kwargs, output)

    def compress(self, module, hidden_states, keys, values, attentions, kwargs):
        of_buffer = self.rotations[module.layer_idx][-hidden_states.shape[1] :]
        placed = {**kwargs, "position_embeddings": tuple(torch.cat(parts, dim=1) for parts in zip(*of_buffer))}
        return super().compress(module, hidden_states, keys, values, attentions, placed)


class RememberedCache(DynamicCache):
    """A cache that remembers every key that was ever put into it."""

    def __init__(self):
        super().__init__()
        self.all_keys = {}

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        self.all_keys.setdefault(layer_idx, []).append(key_states.clone())
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    def positions(self, layer: int) -> list:
        """[KV head] whose keys, known by their values, the layer holds now."""
        every = torch.cat(self.all_keys[layer], dim=2)[0]
        return [sorted(places_among(*keys)) for keys in zip(self.layers[layer].keys[0], every)]


class KvpressDecodingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model, ids = demo_model()
        cls.ids = ids[:, :PROMPT]

    def theirs(self, press) -> tuple:
        """What is generated under a press, and the cache behind the last token that was read."""
        cache, tokens = RememberedCache(), []
        with torch.no_grad(), press(self.model):
            logits = self.model(self.ids, past_key_values=cache).logits
            for position in range(PROMPT, PROMPT + NEW):
                tokens.append(int(logits[0, -1].argmax()))
                if len(tokens) == NEW:
                    break
                logits = self.model(
                    torch.tensor([[tokens[-1]]]),
                    past_key_values=cache,
                    position_ids=torch.tensor([[position]]),
                ).logits
        return tokens, cache

    def test_the_same_tokens_are_held(self):
        policies = []
        for by, settings, _ in CASES:
            given = ",".join(f"{key}={value}" for key, value in settings.items())
            policies.append(f"decoding:by={by},prompt=whole,{given}")
        told = evaluated(MODEL, policies, self.ids, ("--new", NEW))
        for (by, settings, scorer), ours in zip(CASES, told):
            with self.subTest(by=by, **settings):
                kind = DecodingPress if settings.get("window", 1) == 1 else PlacedDecodingPress
                press = kind(base_press=scorer, compression_interval=settings["every"], target_size=settings["budget"])
                tokens, cache = self.theirs(press)
                self.assertEqual(ours["tokens"], tokens)
                held = settings["budget"] + (NEW - 1) % settings["every"]
                self.assertEqual(set(ours["cache_lengths"]), {held})
                for layer, heads in enumerate(ours["end_positions"]):
                    for head, (rows, expected) in enumerate(zip(cache.positions(layer), heads)):
                        only = sorted(set(rows) - set(expected)), sorted(set(expected) - set(rows))
                        self.assertEqual(rows, expected, f"layer {layer}, KV head {head}: alone {only}")


if __name__ == "__main__":
    unittest.main()
