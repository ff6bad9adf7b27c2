# SPDX-License-Identifier: Apache-2.0
"""What the attention of a transformers model works on, while the model runs: the functions that transformers calls for
attention are replaced by ones that call them and then hand on what they were given."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .errors import KvatlasError
from .layer_statistics import Attended, exact_products

_WRAPS = "_kvatlas_wraps"
# What a call may say besides, which changes nothing that is recorded.
_REFUSED = {"cache": "pages of a cache", "cu_seq_lens_q": "packed sequences", "block_mask": "masks of flex attention"}


def _where(module: torch.nn.Module) -> str:
    number = getattr(module, "layer_idx", None)
    return f"{type(module).__name__}{f' of layer {number}' if number is not None else ''}"


class Recorder:
    """Hands what a model's layers attend to, for one sequence, to `take(layer index, module, Attended, output)`."""

    def __init__(self, model: torch.nn.Module, take: Callable[[int, torch.nn.Module, Attended, torch.Tensor], None]):
        self.modules = {id(module) for module in model.modules()}
        self.take = take
        self.seen: set[int] = set()  # layers of the forward pass that runs
        self.on = False

    @contextmanager
    def forward(self) -> Iterator[None]:
        """One forward pass, whose attention is recorded."""
        self.seen, self.on = set(), True
        try:
            yield
        finally:
            self.on = False

    def wrapped(self, original: Callable) -> Callable:
        if hasattr(original, _WRAPS):
            return original

        @functools.wraps(original)
        def attention(module, query, key, value, attention_mask=None, *given, **more):
            out = original(module, query, key, value, attention_mask, *given, **more)
            if self.on and id(module) in self.modules:
                self.record(module, query, key, value, attention_mask, given, more, out[0])
            return out

        setattr(attention, _WRAPS, original)
        return attention

    def record(self, module, query, key, value, mask, given, more, out) -> None:
        where = _where(module)
        number = getattr(module, "layer_idx", None)
        if not isinstance(number, int):
            raise KvatlasError(f"{where} does not say which layer it is of (layer_idx), so a profile cannot place what it attends to")
        if number in self.seen:
            raise KvatlasError(f"{where} attends twice in one forward pass, which a profile has no place for")
        self.seen.add(number)
        if query.dim() != 4 or query.shape[0] != 1:
            raise KvatlasError(f"{where} works on {query.shape[0]} sequences where one was given")
        for name, what in _REFUSED.items():
            if more.get(name) is not None:
                raise KvatlasError(f"{where} works on {what}, which capture cannot record")
        heads, kv_heads = query.shape[1], key.shape[1]
        if heads % kv_heads or value.shape[1] != kv_heads or value.shape[2] != key.shape[2]:
            raise KvatlasError(f"{where}: {heads} query heads, {kv_heads} key heads and {value.shape[1]} value heads have no equal in a profile")
        scaling = more.get("scaling", given[1] if len(given) > 1 else None)
        causal = more.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        attended = Attended(
            query[0], key[0], value[0],
            scale=float(scaling) if scaling is not None else query.shape[3] ** -0.5,
            softcap=float(more.get("softcap") or 0),
            window=int(more.get("sliding_window") or 0),
            sinks=more.get("s_aux"),
            mask=self.mask_of(where, mask, more.get("position_bias"), query.shape[2], key.shape[2]),
            causal=bool(causal),
        )  # fmt: skip
        if attended.mask is None and not attended.causal and query.shape[2] > 1:
            raise KvatlasError(f"{where} looks ahead, and a profile is of causal attention")
        if attended.mask is not None and attended.mask.dtype != torch.bool and attended.mask.shape[0] not in (1, heads):
            raise KvatlasError(f"{where} has a mask for {attended.mask.shape[0]} heads, and {heads} heads")
        self.take(number, module, attended, out[0])

    @staticmethod
    def mask_of(where: str, mask, bias, rows: int, keys: int) -> torch.Tensor | None:
        """[1 or heads, rows, keys], or None where all earlier tokens are seen."""
        if mask is not None and not isinstance(mask, torch.Tensor):
            raise KvatlasError(f"{where} has a mask of the kind {type(mask).__name__}, which capture cannot read; "
                               "set the model's attention to sdpa or eager")  # fmt: skip
        if mask is not None and mask.dim() == 2:  # of flash attention: which tokens are padding
            if not bool(mask.all()):
                raise KvatlasError(f"{where} was given padding, which a prompt of capture has none of")
            mask = None
        if mask is not None:
            if mask.dim() != 4 or mask.shape[2] not in (1, rows) or mask.shape[3] < keys:
                raise KvatlasError(f"{where} has a mask of the sizes {list(mask.shape)} for {rows} rows and {keys} keys")
            mask = mask[0, :, :, :keys].expand(-1, rows, -1)
        if bias is None:
            return mask
        if mask is None:
            mask = torch.ones(1, rows, keys, dtype=torch.bool, device=bias.device).tril(keys - rows)
        least = torch.finfo(bias.dtype).min
        return torch.where(mask, bias[0], least) if mask.dtype == torch.bool else (bias[0] + mask).clamp(min=least)


@contextmanager
def attention_recorded(recorder: Recorder) -> Iterator[None]:
    """Replaces the attention functions under their own names, those registered for all models and those of single
    modelling files ("eager"), and puts them back, whatever happens."""
    from transformers import AttentionInterface

    interface = importlib.import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    kinds: set[Any] = {AttentionInterface, type(interface)}
    found = {kind: kind.__dict__["get_interface"] for kind in kinds if "get_interface" in kind.__dict__}
    registered = dict(AttentionInterface._global_mapping)

    def replaced(original):
        @functools.wraps(original)
        def get_interface(self, *given, **more):
            return recorder.wrapped(original(self, *given, **more))

        return get_interface

    try:
        for kind, original in found.items():
            kind.get_interface = replaced(original)
        for name, function in registered.items():
            AttentionInterface._global_mapping[name] = recorder.wrapped(function)
        yield
    finally:
        for kind, original in found.items():
            kind.get_interface = original
        AttentionInterface._global_mapping.clear()
        AttentionInterface._global_mapping.update(registered)


def output_difference(given: Attended, out: torch.Tensor, rows: int = 4) -> float:
    """How far the layer's own output, [rows, heads, channels], is from what the recorded scores and values give, for the
    last rows; as a share of its greatest number."""
    count = min(rows, given.query.shape[1])
    with exact_products():
        weights, sink, _ = given.weights(given.scores(given.query.shape[1] - count, given.query.shape[1]))
        weights /= weights.sum(-1, keepdim=True) + sink
        heads, keys = weights.shape[0], weights.shape[2]
        value = given.value.float()
        ours = (weights.view(value.shape[0], -1, keys) @ value).view(heads, count, -1).transpose(0, 1)
        theirs = out[-count:].float()
        if ours.shape != theirs.shape:
            return float("inf")
        return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30))
