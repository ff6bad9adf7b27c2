# SPDX-License-Identifier: Apache-2.0
"""DynamicKV, SnapKV and PyramidKV. Each KV head keeps the last tokens of the prompt, which are the window, and of the
other tokens those that the window's rows score highest, as many as the budget of its layer."""

from __future__ import annotations

from functools import cached_property

import torch

from . import selection
from .band import Band
from .errors import PolicyError
from .planner import Planner


class Budgets(Planner):
    def __init__(self, part, shape):
        super().__init__(part, shape)
        if part.settings.get("heads", "kv") != "kv":
            raise PolicyError(f"{part.name}: heads=query is simulated by kvatlas alone; this package runs heads=kv")
        self.rows = part["window"]
        self.is_local = part.name != "dynamickv" or part.budgets is not None
        self.scores: list[torch.Tensor] = []  # [layer] of [heads, positions before the window]

    def observe(self, rows, columns):
        if rows.shape[2] > self.rows:
            scores = selection.window_scores(rows[:, -self.rows :], self.part["kernel"], self.part["pooling"])
            self.scores.append(scores)

    @cached_property
    def budgets(self) -> list[int] | None:
        """[layer], without the tokens of the window. None for a prompt that is no longer than the window."""
        part, shape = self.part, self.shape
        if not self.scores:
            return None
        positions, base = self.scores[0].shape[1], part["budget"] - part["window"]
        if part.name == "snapkv":
            return [base] * shape.layers
        if part.name == "pyramidkv":
            return selection.pyramid_budgets(base, shape.layers)
        if part.budgets is not None:
            return [min(budget, positions) for budget in part.budgets]
        return selection.dynamic_budgets(self.scores, base, part["r_max"], part["update"])

    def selected(self, layer: int, band: Band) -> torch.Tensor | None:
        if self.budgets is None:
            return None
        scores = self.scores[layer].view(self.shape.kv_heads, self.shape.group, -1).mean(1)
        return selection.best_and_rest(scores, self.budgets[layer], scores.shape[1], len(band.keys))

    def decided(self):
        return {} if self.budgets is None else {"budgets": self.budgets}

    def forget(self):
        self.decided()  # finds the budgets while the scores are there
        self.scores = []
