# SPDX-License-Identifier: Apache-2.0
"""PoD: within a block of layers only the lowest keeps the keys of distant tokens. The others score those tokens by its
queries and keys, and weigh their own values. The cache holds all of them; this file decides what it keeps and reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from . import selection
from .attention import capped
from .band import Band
from .errors import PolicyError
from .planner import Planner

ROWS = 16  # how many of the last prompt rows layers are compared by


@dataclass
class Source:
    """What one KV head of a layer lends to the same head of this layer or of one above it."""

    layer: int
    positions: torch.Tensor  # the positions of its keys: [tokens]
    keys: torch.Tensor  # [tokens, channels]
    queries: torch.Tensor | None  # all query heads of its layer in this pass: [heads, tokens, channels]


def _pick(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The rows [n, channels] at an ascending index. They are not copied if they follow each other."""
    if len(index) and int(index[-1]) - int(index[0]) + 1 == len(index):
        return rows.narrow(0, int(index[0]), len(index))
    return rows.index_select(0, index.to(rows.device))


class Pod(Planner):
    def __init__(self, part, shape):
        super().__init__(part, shape)
        if part.settings.get("prefill", "own") != "own":
            raise PolicyError("pod: prefill=shared is simulated by kvatlas alone; this package runs prefill=own")
        self.is_local = part.lowest is not None
        self.rows = 0 if self.is_local else ROWS
        self.observed: list[torch.Tensor] = []  # [layer] of [heads, rows, tokens]

    def observe(self, rows, columns):
        if self.rows > 0:
            self.observed.append(rows[:, -self.rows :].cpu())

    @cached_property
    def lowest(self) -> list[list[int]]:
        """The lowest layer of the block that the layer is in: [query head][layer]."""
        if self.part.lowest is not None:
            return self.part.lowest
        per_query_head = self.part["granularity"] == "head"
        return selection.pod_blocks(self.observed, self.shape.kv_heads, per_query_head, self.part["delta"])

    def decided(self):
        return {"lowest_layer": self.lowest}

    def forget(self):
        self.observed = []

    def heads(self, kv_head: int) -> range:
        return range(kv_head * self.shape.group, (kv_head + 1) * self.shape.group)

    def sources(self, layer: int, kv_head: int) -> list[int]:
        """The layers by whose keys the query heads of a KV head score distant tokens, ascending."""
        return sorted({self.lowest[head][layer] for head in self.heads(kv_head)})

    def _near(self, positions: torch.Tensor, last: int, recent: int) -> torch.Tensor:
        return (positions < self.part["initial"]) | (positions > last - recent)

    def _distant(self, positions: torch.Tensor, last: int, window) -> torch.Tensor:
        begin = max(self.part["initial"], last - window + 1 if window else 0)
        return (positions >= begin) & (positions <= last - self.part["recent"])

    def near_keys(self, layer: int, kv_head: int, positions: torch.Tensor, last: int, reach: int) -> torch.Tensor:
        """Which of the keys at these positions the head keeps when `last` is the last position: their rows, ascending.
        All stay if distant keys of the head are read, else those of near tokens and of at least the `reach` last
        tokens."""
        if layer in self.sources(layer, kv_head):
            return torch.arange(len(positions))
        return self._near(positions, last, max(self.part["recent"], reach)).nonzero().view(-1)

    def gates(self, held: list[torch.Tensor], first: int, tokens: int, window) -> int:
        """How many gates there are where KV heads that hold keys of these positions read no other layer's keys: one
        for each query head and token that has distant keys."""
        if self.part["tau"] >= 1:
            return 0
        return self.shape.group * sum(
            bool(self._distant(of_head, position, window).any())
            for of_head in held
            for position in range(first, first + tokens)
        )

    def attend(self, band: Band, layer: int, query, sources: list[Source], first: int, scaling, softcap, window):
        """The attention of a band of one KV head on its own near keys and on the distant keys of the sources, for
        tokens at the positions from `first` on: [query heads, tokens, channels]. Also how many gates there were (one
        for each query head and token that has distant keys), and how many of them skipped those. Tokens are taken one
        by one, because each has other distant tokens."""
        recent, tau = self.part["recent"], self.part["tau"]
        heads = self.heads(band.first)
        held, of_values = band.key_positions[0], band.value_positions[0]
        keys, values = band.keys.all()[0], band.values.all()[0]
        out = query.new_empty(len(heads), query.shape[1], values.shape[-1])
        gates = skipped = 0

        def score(of: torch.Tensor, on: torch.Tensor) -> torch.Tensor:
            return capped(of @ on.T * scaling, softcap).float()

        for token in range(query.shape[1]):
            position = first + token
            begin = position - window + 1 if window else 0
            near = self._near(held, position, recent) & (held <= position) & (held >= begin)
            near = near.nonzero().view(-1)
            near_keys = _pick(keys, near)
            near_values = _pick(values, torch.searchsorted(of_values, held[near]))
            for source in sources:
                positions = source.positions
                here = self._distant(positions, position, window)
                if source.layer != layer:
                    here &= torch.isin(positions, of_values)
                far = here.nonzero().view(-1)
                mine = [head for head in heads if self.lowest[head][layer] == source.layer]
                near_scores = score(query[mine, token], near_keys)
                far_scores = score(source.queries[mine, token].to(query.device), _pick(source.keys, far))
                if tau < 1 and len(far):
                    gates += len(mine)
                if tau < 1 and len(far) and source.layer != layer:
                    skips = torch.sigmoid(near_scores.logsumexp(-1) - far_scores.logsumexp(-1)) >= tau
                    skipped += int(skips.sum())
                    far_scores = far_scores.masked_fill(skips[:, None], float("-inf"))
                weights = torch.softmax(torch.cat([near_scores, far_scores], dim=-1), dim=-1).to(values.dtype)
                far_values = _pick(values, torch.searchsorted(of_values, positions[far]))
                places = [head - heads.start for head in mine]
                out[places, token] = weights[:, : len(near)] @ near_values + weights[:, len(near) :] @ far_values
        return out, gates, skipped
