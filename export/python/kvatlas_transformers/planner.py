# SPDX-License-Identifier: Apache-2.0
"""What the planners of all parts have in common. Each part has its planner in a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .parts import ModelShape, Part


@dataclass(frozen=True)
class Seen:
    """What the attention of a layer is handed of the prompt."""

    module: Any  # the layer's attention
    rotary: Any  # the model's module that makes the cosines and sines of RoPE, if it has one
    query: torch.Tensor  # [heads, tokens, channels], after RoPE
    key: torch.Tensor  # [KV heads, tokens, channels]
    value: torch.Tensor
    scaling: float
    softcap: float | None
    window: int | None


class Planner:
    """How one part of a policy is planned: what it must see of a prompt, and what it cuts. A part that trims layers
    also has trimmed(layer), a part that selects tokens also has selected(layer, band)."""

    rows = 0  # how many of the last attention rows of every layer it must see
    columns = False  # whether it must see the sums of all attention columns
    delay = False  # whether it decides by the first token behind the prompt
    trimmed_of: Callable[[int], list[bool]]  # of a layer, when layers are cut: which KV heads some part trims
    is_local = True  # whether it can cut a layer before the next one is prefilled

    def __init__(self, part: Part, shape: ModelShape):
        self.part, self.shape = part, shape

    def look(self, layer: int, seen: Seen) -> None:
        """Called for every layer of the prompt in order, before observe()."""

    def observe(self, rows: torch.Tensor, columns: torch.Tensor | None) -> None:
        """Called for every layer of the prompt in order. rows [heads, rows, tokens] are at least the last rows that it
        must see, columns [KV heads, tokens] the sums of all columns if some part must see them."""

    def observe_first_step(self, row: torch.Tensor) -> None:
        """Called for every layer in order, for the first token behind the prompt. row is [heads, 1, tokens]."""

    def decided(self) -> dict:
        """What was decided on this prompt, for reports."""
        return {}

    def forget(self) -> None:
        """Called when everything is cut and what was observed is no longer needed."""
