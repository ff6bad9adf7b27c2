# SPDX-License-Identifier: Apache-2.0
"""TOVA, KeyDiff, ChunkKV, CriticalKV and scores of the caller's own: of a prompt longer than the budget each layer keeps
the tokens, or the chunks of tokens, that score best."""

from __future__ import annotations

import torch

from . import selection
from .band import Band
from .errors import PolicyError
from .planner import Planner


class BestScored(Planner):
    rows = 1  # which say how long the prompt is, too

    def __init__(self, part, shape):
        super().__init__(part, shape)
        self.scores: list[torch.Tensor] = []  # [layer] of [KV heads, tokens], where a method finds no others
        self.prompt = 0  # tokens

    def observe(self, rows, columns):
        self.prompt = rows.shape[2]

    def selected(self, layer: int, band: Band) -> torch.Tensor | None:
        """A token behind the prompt, if there is one already, stays."""
        return self.best(layer, band) if self.prompt > self.part["budget"] else None

    def best(self, layer: int, band: Band) -> torch.Tensor:
        """The positions that each KV head keeps, ascending."""
        return selection.best_and_rest(self.scores[layer], self.part["budget"], self.prompt, len(band.keys))

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

    def look(self, layer, seen):
        self.scores.append(selection.unlike_mean_scores(seen.key))


class Scored(BestScored):
    """By a function of the caller's: score(keys, values, queries, positions, layer), of tensors [KV heads, tokens,
    channels], [heads, tokens, channels] and [tokens], gives [KV heads, tokens], or [tokens] for all heads alike."""

    def look(self, layer, seen):
        tokens = seen.key.shape[1]
        if tokens <= self.part["budget"]:
            return
        positions = torch.arange(tokens, device=seen.key.device)
        scores = self.part.score(seen.key, seen.value, seen.query, positions, layer)
        shapes = (tokens,), (1, tokens), (self.shape.kv_heads, tokens)
        if not isinstance(scores, torch.Tensor) or tuple(scores.shape) not in shapes:
            found = list(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
            raise PolicyError(f"{self.part.name}: scores of layer {layer} are {found}, expected a tensor of {list(shapes[2])} or {list(shapes[0])}")
        if bool(torch.isnan(scores).any()):
            raise PolicyError(f"{self.part.name}: a score of layer {layer} is no number")
        self.scores.append(scores.expand(self.shape.kv_heads, tokens))


class WindowScored(BestScored):
    """Finds the scores of the window's rows, [KV heads, positions before the window]."""

    def __init__(self, part, shape):
        super().__init__(part, shape)
        self.rows = part["window"]

    def observe(self, rows, columns):
        super().observe(rows, columns)
        if self.prompt > self.rows:
            scores = selection.window_scores(rows[:, -self.rows :], self.part["kernel"], self.part["pooling"])
            self.scores.append(scores.view(self.shape.kv_heads, self.shape.group, -1).mean(1))


class CriticalKv(WindowScored):
    """A part of the budget by these scores, the rest by them and by what a token's values add to the layer's output."""

    def __init__(self, part, shape):
        super().__init__(part, shape)
        self.outputs: list[torch.Tensor] = []  # [layer] of [KV heads, tokens]

    def look(self, layer, seen):
        if seen.key.shape[1] <= self.part["budget"]:
            return
        if not isinstance(output := getattr(seen.module, "o_proj", None), torch.nn.Linear):
            raise PolicyError(f"criticalkv: {type(seen.module).__name__} has no o_proj, whose weights it asks")
        values = seen.value.repeat_interleave(self.shape.group, dim=0)
        weights = output.weight.view(output.weight.shape[0], self.shape.heads, -1)
        sums = [(values[head] @ weights[:, head].T).float().abs().sum(1) for head in range(self.shape.heads)]
        self.outputs.append(torch.stack(sums).view(self.shape.kv_heads, self.shape.group, -1).mean(1))

    def best(self, layer, band):
        part, scores = self.part, selection.with_window(self.scores[layer], self.rows)
        weighed = (scores + part["epsilon"]) * self.outputs[layer]
        first = max(1, int(part["budget"] * part["share"])) if part["share"] > 0 else 0
        weighed.scatter_(1, selection.largest(scores, first), torch.inf)
        return selection.best_and_rest(weighed, part["budget"], self.prompt, len(band.keys))

    def forget(self):
        super().forget()
        self.outputs = []


class ChunkKv(WindowScored):
    """By these scores, whole chunks of neighbouring tokens, the same ones in all heads."""

    def best(self, layer, band):
        chunk = self.part["chunk"]
        kept = max(1, -(-self.prompt // chunk) * self.part["budget"] // self.prompt)
        best = selection.best_chunks(self.scores[layer], self.rows, chunk, kept).cpu()
        tokens = torch.arange(len(band.keys))
        stays = torch.isin(tokens // chunk, best) | (tokens >= self.prompt)
        return tokens[stays].expand(self.shape.kv_heads, -1)
