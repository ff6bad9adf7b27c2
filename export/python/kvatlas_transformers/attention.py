# SPDX-License-Identifier: Apache-2.0
"""The attention function that transformers calls by the name "kvatlas"."""

from __future__ import annotations

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from .errors import PolicyError

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


def capped(scores: torch.Tensor, softcap: float | None) -> torch.Tensor:
    return softcap * torch.tanh(scores / softcap) if softcap else scores


def last_rows(query, keys, first: int, scaling: float, softcap, window) -> torch.Tensor:
    """The attention rows of some queries, [heads, rows, tokens] in float32. The queries [heads, rows, channels] are at
    the positions from `first` on, the keys [KV heads, tokens, channels] at the positions from 0 on."""
    heads, count, channels = query.shape
    grouped = query.float().reshape(keys.shape[0], -1, channels)
    scores = capped((grouped @ keys.float().transpose(1, 2)).view(heads, count, -1) * scaling, softcap)
    row = torch.arange(first, first + count, device=query.device)[:, None]
    key = torch.arange(keys.shape[1], device=query.device)[None, :]
    hidden = key > row
    if window:
        hidden |= key <= row - window
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)


def column_sums(query, keys, scaling: float, softcap, window) -> torch.Tensor:
    """How much attention each key gets from all rows together, as the mean over the query heads of a KV head:
    [KV heads, tokens]."""
    heads, tokens, _ = query.shape
    precise = torch.float32 if query.device.type == "mps" else torch.float64
    sums = torch.zeros(heads, tokens, dtype=precise, device=query.device)
    for first in range(0, tokens, 256):
        sums += last_rows(query[:, first : first + 256], keys, first, scaling, softcap, window).sum(1, dtype=precise)
    return sums.view(keys.shape[0], -1, tokens).mean(1).float()


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
