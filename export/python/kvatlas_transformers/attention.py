# SPDX-License-Identifier: Apache-2.0
"""The attention function that transformers calls by the name "kvatlas"."""

from __future__ import annotations

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from .errors import PolicyError
from .selection import capped

NAME = "kvatlas"
MARK = "_kvatlas_cache"  # attribute of keys that one of our caches handed out: that cache


def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs):
    """query is [1, heads, tokens, channels]. If the cache is one of ours, key and value are only those of the new
    tokens; otherwise they are those of all tokens."""
    cache = getattr(key, MARK, None)
    if cache is None:
        return usual_attention(module, query, key, value, attention_mask, scaling, dropout, **kwargs)
    delattr(key, MARK)
    if kwargs.get("s_aux") is not None or kwargs.get("position_bias") is not None:
        raise PolicyError(f"{type(module).__name__} has attention sinks or biases, which policies do not know")
    if scaling is None:
        scaling = query.shape[-1] ** -0.5
    out = cache.attend(module, query, key, value, attention_mask, scaling, dropout, **kwargs)
    return out, None


def usual_attention(module, query, key, value, attention_mask, scaling, dropout, **kwargs):
    """Does what "sdpa" does or, if there is a softcap, which "sdpa" does not know, what "eager" does."""
    softcap = kwargs.pop("softcap", None)
    if not softcap:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = capped(query @ key.transpose(2, 3) * scaling, softcap)
    if attention_mask is None and query.shape[2] > 1:
        attention_mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = torch.nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
