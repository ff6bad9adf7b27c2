# SPDX-License-Identifier: Apache-2.0
"""A policy, and the caches that it makes for a model."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .errors import PolicyError
from .parts import ModelShape, Part


def shape_of(model) -> ModelShape:
    """Of a transformers model."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return ModelShape(config.num_hidden_layers, heads, kv_heads, head_dim, str(getattr(config, "_name_or_path", "")))


class Policy:
    """The policy that `load` reads from a document, or one's own scores. `policy.cache(model)` makes a cache for one
    sequence."""

    def __init__(self, shape: ModelShape, parts: list[Part], kv_bits: int = 16, kv_residual: int = 0):
        self.shape = shape
        self.parts = parts
        self.kv_bits = kv_bits
        self.kv_residual = kv_residual

    @classmethod
    def scored(cls, model, score: Callable[..., torch.Tensor], budget: int, name: str = "scored") -> Policy:
        """Each KV head keeps the `budget` tokens of the prompt that score(keys, values, queries, positions, layer) says
        are best: [KV heads, tokens], or [tokens], by tensors of the layer's prompt after RoPE."""
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
            raise PolicyError(f"{name}: a budget of {budget!r}, expected a number of tokens")
        return cls(shape_of(model), [Part(name, {"budget": budget}, score=score)])

    def __repr__(self) -> str:
        names = [part.name for part in self.parts] + ([f"kv{self.kv_bits}"] if self.kv_bits != 16 else [])
        return f"<kvatlas policy {'+'.join(names) or 'full'} for {self.shape.name or 'a model'}>"

    def cache(self, model, tokenizer=None, prompt=None):
        """A cache of this policy for `model`, to be passed as past_key_values. It is for one sequence (batch 1,
        unpadded). Switches the model to the attention function "kvatlas", which does what "sdpa" does where the
        cache is another. KVzip, which asks the model to repeat the prompt, needs the tokenizer and the prompt's tokens."""
        from .attention import NAME
        from .cache import PolicyCache
        from .kvzip import Reader

        self._check(model)
        model.set_attn_implementation(NAME)
        config = model.config.get_text_config()
        if config._attn_implementation != NAME:
            raise PolicyError(f"{type(model).__name__} does not let its attention function be set")
        decoder = model.get_decoder()
        reader = Reader(decoder, tokenizer, None if prompt is None else torch.as_tensor(prompt).flatten().tolist())
        return PolicyCache(self.shape, self.parts, self.kv_bits, self.kv_residual, getattr(decoder, "rotary_emb", None), reader)

    def _check(self, model) -> None:
        """Raises PolicyError for a model that the policy is not for."""
        config = model.config.get_text_config()
        if getattr(model.config, "is_encoder_decoder", False):
            raise PolicyError(f"{type(model).__name__} is an encoder-decoder, policies are for decoders")
        found = shape_of(model)
        for what in ("layers", "heads", "kv_heads", "head_dim"):
            if (count := getattr(found, what)) != getattr(self.shape, what):
                raise PolicyError(
                    f"the policy is for a model of {getattr(self.shape, what)} {what.replace('_', ' ')}, "
                    f"{type(model).__name__} has {count}"
                )
        others = set(getattr(config, "layer_types", None) or []) - {"full_attention", "sliding_attention"}
        if others:
            raise PolicyError(f"{type(model).__name__} has layers of {', '.join(sorted(others))}, which keep no keys")
        if getattr(config, "num_kv_shared_layers", 0):
            raise PolicyError(f"{type(model).__name__} shares keys and values between layers already")
