# SPDX-License-Identifier: Apache-2.0
"""A whole prompt's cache while the model reads on behind it, without a trace."""

from __future__ import annotations

import torch
from transformers import Cache

from . import attention, selection
from .band import Band
from .cache_layer import CacheLayer


class Repeating(Cache):
    """Of what is read it keeps only the greatest attention on each token of a part of the prompt."""

    is_compileable = False

    def __init__(self, layers: list[Band], part: range, sink: int):
        super().__init__(layers=[CacheLayer(self) for _ in layers])
        self.whole, self.part, self.sink = layers, part, sink
        self.seen = len(layers[0].keys)
        self.greatest: list[torch.Tensor] = []  # [layer] of [KV heads, tokens of the part]

    def update(self, key_states, value_states, layer_idx: int, *args, **kwargs):
        whole = self.whole[layer_idx]
        key = torch.cat([whole.keys.all()[None], key_states], dim=2)
        setattr(key, attention.MARK, self)
        return key, torch.cat([whole.values.all()[None], value_states], dim=2)

    def attend(self, module, query, key, value, mask, scaling, dropout, sliding_window=None, softcap=None, **kwargs):
        how = self.seen, self.part, self.sink, scaling, softcap, sliding_window
        self.greatest.append(selection.greatest_attention(query[0], key[0], *how).cpu())
        kwargs.update(sliding_window=sliding_window, softcap=softcap)
        return attention.usual_attention(module, query, key, value, mask, scaling, dropout, **kwargs)[0]
