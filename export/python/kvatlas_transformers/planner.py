# SPDX-License-Identifier: Apache-2.0
"""What the planners of all parts have in common. Each part has its planner in a file of its own."""

from __future__ import annotations

import torch

from .parts import ModelShape, Part


class Planner:
    """How one part of a policy decides what is kept of a prompt: what it must see of it, and what it cuts. Parts that
    trim layers have trimmed(layer), parts that select tokens have selected(layer, band)."""

    rows = 0  # last attention rows of every layer of the prompt that it looks at
    columns = False  # whether it looks at the sums of all attention columns
    delay = False  # whether it decides by the first token behind the prompt
    is_local = True  # whether it cuts a layer before the next one is prefilled

    def __init__(self, part: Part, shape: ModelShape):
        self.part, self.shape = part, shape

    def observe(self, rows: torch.Tensor, columns: torch.Tensor | None) -> None:
        """Of the next layer of the prompt: at least the last rows that it looks at, [heads, rows, tokens], and the sums
        of all columns, [KV heads, tokens]."""

    def observe_first_step(self, row: torch.Tensor) -> None:
        """row: [heads, 1, tokens], of the first token behind the prompt in the next layer."""

    def decided(self) -> dict:
        """What this prompt decided, for reports."""
        return {}

    def forget(self) -> None:
        """Everything is cut: what was observed is no longer needed."""
