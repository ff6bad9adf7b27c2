# SPDX-License-Identifier: Apache-2.0
"""kvpress's DecodingPress, as it is exported, and `decoding` hold the same tokens, layer by layer and head by head, while
the demo model generates."""

import unittest

import torch
from kvpress import DecodingPress, SnapKVPress
from kvpress_support import demo_model, evaluated, load_press, places_among
from support import MODEL, export, selection_document
from transformers import DynamicCache

PROMPT = 200  # tokens
NEW = 45
# kvpress leaves the tokens in the order of their scores, so after a choice its pooling has other neighbours: nothing is
# pooled here. Of l2, equal tokens have keys of equal length in the first layer, but for their rounding: left out.
CASES = (
    {"by": "keydiff", "budget": 64, "every": 8},
    {"by": "keydiff", "budget": 150, "every": 1},
    {"by": "tova", "budget": 64, "every": 8},
    {"by": "tova", "budget": 120, "every": 1},
    {"by": "snapkv", "budget": 64, "every": 9, "window": 1, "kernel": 1},
    {"by": "snapkv", "budget": 80, "every": 20, "window": 8, "kernel": 1},
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
        for settings in CASES:
            given = ",".join(f"{key}={value}" for key, value in settings.items())
            policies.append(f"decoding:prompt=whole,{given}")
        told = evaluated(MODEL, policies, self.ids, ("--new", NEW))
        for settings, ours in zip(CASES, told):
            with self.subTest(**settings):
                press = load_press(export(selection_document(self.model, "decoding", settings), "kvpress", "--length", PROMPT))
                if settings.get("window", 1) > 1:
                    self.assertEqual(press.base_press, SnapKVPress(window_size=settings["window"], kernel_size=1))
                    press = PlacedDecodingPress(press.base_press, press.compression_interval, press.target_size)
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
