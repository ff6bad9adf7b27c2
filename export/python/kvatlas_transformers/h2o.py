# SPDX-License-Identifier: Apache-2.0
"""H2O: a part of the budget goes to the tokens that got most attention, the rest to the last ones."""

from __future__ import annotations

import torch

from . import selection
from .band import Band
from .planner import Planner


class H2o(Planner):
    columns = True

    def __init__(self, part, shape):
        super().__init__(part, shape)
        self.sums: list[torch.Tensor] = []  # [layer] of [KV heads, tokens of the prompt]

    def observe(self, rows, columns):
        self.sums.append(columns)

    def selected(self, layer: int, band: Band) -> torch.Tensor:
        length, heavy = len(band.keys), self.part["heavy"]
        best = self.part["budget"] // 2 if heavy is None else heavy
        recent = max(0, length - (self.part["budget"] - best))
        return selection.best_and_rest(self.sums[layer][:, :recent], best, recent, length)

    def forget(self):
        self.sums = []
