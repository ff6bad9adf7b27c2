# SPDX-License-Identifier: Apache-2.0
"""TOVA, KeyDiff and ChunkKV: of a prompt longer than the budget each layer keeps the tokens, or the chunks of tokens, that
score best."""

from __future__ import annotations

import torch

from . import selection
from .band import Band
from .planner import Planner


class BestScored(Planner):
    rows = 1  # which say how long the prompt is, too

    def __init__(self, part, shape):
        super().__init__(part, shape)
        self.scores: list[torch.Tensor] = []  # [layer], where the prompt's attention gives them
        self.prompt = 0  # tokens

    def observe(self, rows, columns):
        self.prompt = rows.shape[2]

    def selected(self, layer: int, band: Band) -> torch.Tensor | None:
        """A token behind the prompt, if there is one already, stays."""
        return self.best(layer, band) if self.prompt > self.part["budget"] else None

    def best(self, layer: int, band: Band) -> torch.Tensor:
        """The positions that each KV head keeps, ascending."""
        raise NotImplementedError

    def forget(self):
        self.scores = []


class Tova(BestScored):
    """By the last token's attention, in the mean over all heads; the last token stays."""

    def observe(self, rows, columns):
        super().observe(rows, columns)
        self.scores.append(rows[:, -1, :-1].mean(0, keepdim=True))

    def best(self, layer, band):
        chosen = selection.best_and_rest(self.scores[layer], self.part["budget"] - 1, self.prompt - 1, len(band.keys))
        return chosen.expand(self.shape.kv_heads, -1)


class KeyDiff(BestScored):
    """The less a key is like the mean of all, the better."""

    def best(self, layer, band):
        scores = selection.unlike_mean_scores(band.keys.all()[:, : self.prompt])
        return selection.best_and_rest(scores, self.part["budget"], self.prompt, len(band.keys))


class ChunkKv(BestScored):
    """By the scores of the window's rows, whole chunks of neighbouring tokens, the same ones in all heads."""

    def __init__(self, part, shape):
        super().__init__(part, shape)
        self.rows = part["window"]

    def observe(self, rows, columns):
        super().observe(rows, columns)
        if self.prompt > self.rows:
            scores = selection.window_scores(rows[:, -self.rows :], self.part["kernel"], self.part["pooling"])
            self.scores.append(scores.view(self.shape.kv_heads, self.shape.group, -1).mean(1))

    def best(self, layer, band):
        chunk = self.part["chunk"]
        kept = max(1, -(-self.prompt // chunk) * self.part["budget"] // self.prompt)
        best = selection.best_chunks(self.scores[layer], self.rows, chunk, kept).cpu()
        tokens = torch.arange(len(band.keys))
        stays = torch.isin(tokens // chunk, best) | (tokens >= self.prompt)
        return tokens[stays].expand(self.shape.kv_heads, -1)
