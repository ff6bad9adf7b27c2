# SPDX-License-Identifier: Apache-2.0
"""A policy, and the caches that it makes for a model."""

from __future__ import annotations

from .errors import PolicyError
from .parts import ModelShape, Part


class Policy:
    """The policy that `load` reads from a document. `policy.cache(model)` makes a cache for one sequence."""

    def __init__(self, shape: ModelShape, parts: list[Part], kv_bits: int = 16, kv_residual: int = 0):
        self.shape = shape
        self.parts = parts
        self.kv_bits = kv_bits
        self.kv_residual = kv_residual

    def __repr__(self) -> str:
        names = [part.name for part in self.parts] + ([f"kv{self.kv_bits}"] if self.kv_bits != 16 else [])
        return f"<kvatlas policy {'+'.join(names) or 'full'} for {self.shape.name or 'a model'}>"

    def cache(self, model):
        """A cache of this policy for `model`, to be passed as past_key_values. It is for one sequence (batch 1,
        unpadded). Switches the model to the attention function "kvatlas", which does what "sdpa" does where the
        cache is another."""
        from .attention import NAME
        from .cache import PolicyCache

        self._check(model)
        model.set_attn_implementation(NAME)
        config = model.config.get_text_config()
        if config._attn_implementation != NAME:
            raise PolicyError(f"{type(model).__name__} does not let its attention function be set")
        return PolicyCache(self.shape, self.parts, self.kv_bits, self.kv_residual)

    def _check(self, model) -> None:
        """Raises PolicyError for a model that the policy is not for."""
        config = model.config.get_text_config()
        if getattr(model.config, "is_encoder_decoder", False):
            raise PolicyError(f"{type(model).__name__} is an encoder-decoder, policies are for decoders")
        found = {
            "layers": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "kv_heads": getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        }
        found["head_dim"] = getattr(config, "head_dim", None) or config.hidden_size // found["heads"]
        for what, count in found.items():
            if count != getattr(self.shape, what):
                raise PolicyError(
                    f"the policy is for a model of {getattr(self.shape, what)} {what.replace('_', ' ')}, "
                    f"{type(model).__name__} has {count}"
                )
        others = set(getattr(config, "layer_types", None) or []) - {"full_attention", "sliding_attention"}
        if others:
            raise PolicyError(f"{type(model).__name__} has layers of {', '.join(sorted(others))}, which keep no keys")
        if getattr(config, "num_kv_shared_layers", 0):
            raise PolicyError(f"{type(model).__name__} shares keys and values between layers already")
