# SPDX-License-Identifier: Apache-2.0
"""DynamicKV, HeadKV, AdaKV, SnapKV and PyramidKV. Each KV head keeps the last tokens of the prompt, which are the window, and of the
other tokens those that the window's rows score highest, as many as its own budget or its layer's."""

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
        self.is_local = part.name not in ("dynamickv", "headkv") or part.budgets is not None
        self.scores: list[torch.Tensor] = []  # [layer] of [heads, positions before the window]

    def observe(self, rows, columns):
        if rows.shape[2] > self.rows:
            scores = selection.window_scores(rows[:, -self.rows :], self.part["kernel"], self.part["pooling"])
            self.scores.append(scores)

    @cached_property
    def budgets(self) -> list[int] | list[list[int]] | None:
        """[layer], of HeadKV [layer][KV head], without the tokens of the window. None for a prompt that is no longer
        than the window."""
        part, shape = self.part, self.shape
        if not self.scores:
            return None
        positions, base = self.scores[0].shape[1], part["budget"] - part["window"]
        if part.name in ("snapkv", "adakv"):
            return [base] * shape.layers
        if part.name == "pyramidkv":
            return selection.pyramid_budgets(base, shape.layers)
        if part.name == "headkv":
            return self.head_budgets(base, positions)
        if part.budgets is not None:
            return [min(budget, positions) for budget in part.budgets]
        return selection.dynamic_budgets(self.scores, base, part["r_max"], part["update"])

    def head_budgets(self, base: int, positions: int) -> list[list[int]]:
        part, shape = self.part, self.shape
        if part.budgets is not None:
            return [[min(budget, positions) for budget in row] for row in part.budgets]
        budgets = [[0] * shape.kv_heads for _ in range(shape.layers)]
        sharing = [(layer, head) for layer in range(shape.layers) for head in range(shape.kv_heads) if not self.trimmed_of(layer)[head]]
        if sharing:
            scores = torch.cat([self.scores_of_heads(layer) for layer in range(shape.layers)])
            shares = self.shared_budgets(scores[[layer * shape.kv_heads + head for layer, head in sharing]], base)
            for (layer, head), share in zip(sharing, shares):
                budgets[layer][head] = share
        return budgets

    def shared_budgets(self, scores: torch.Tensor, base: int) -> list[int]:
        """Of KV heads that share `base` tokens each in the mean, by their scores [heads, positions]."""
        if scores.shape[1] <= base:
            return [scores.shape[1]] * len(scores)
        safe = max(0, int(self.part["budget"] * self.part["safeguard"]) - self.part["window"])
        return selection.counts_of_best(scores, base * len(scores), safe)

    def scores_of_heads(self, layer: int) -> torch.Tensor:
        return self.scores[layer].view(self.shape.kv_heads, self.shape.group, -1).mean(1)

    def selected(self, layer: int, band: Band) -> torch.Tensor | list[torch.Tensor] | None:
        if self.budgets is None:
            return None
        scores, budget = self.scores_of_heads(layer), self.budgets[layer]
        if self.part.name == "adakv":
            sharing = [head for head, trimmed in enumerate(self.trimmed_of(layer)) if not trimmed]
            shares = dict(zip(sharing, self.shared_budgets(scores[sharing], budget)))
            budget = [shares.get(head, 0) for head in range(len(scores))]
        if isinstance(budget, int):
            return selection.best_and_rest(scores, budget, scores.shape[1], len(band.keys))
        return [
            selection.best_and_rest(row[None], of_head, scores.shape[1], len(band.keys))[0]
            for row, of_head in zip(scores, budget)
        ]

    def decided(self):
        of_layers = self.budgets is not None and self.part.name not in ("headkv", "adakv")
        return {"budgets": self.budgets} if of_layers else {}

    def forget(self):
        self.decided()  # finds the budgets while the scores are there
        self.scores = []
