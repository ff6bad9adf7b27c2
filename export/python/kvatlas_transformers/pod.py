# SPDX-License-Identifier: Apache-2.0
"""PoD: within a block of layers only the lowest keeps keys of distant tokens; the others score them by its queries and
keys, and weigh their own values. What is held is the cache's: here is said what it keeps and reads of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from . import selection
from .attention import capped
from .band import Band
from .planner import Planner

ROWS = 16  # last prompt rows by which layers are compared


@dataclass
class Source:
    """What one KV head of a layer lends to the same head of this layer or of one above it."""

    layer: int
    positions: torch.Tensor  # of its keys: [tokens]
    keys: torch.Tensor  # [tokens, channels]
    queries: torch.Tensor | None  # of all query heads of its layer in this pass: [heads, tokens, channels]


def _pick(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """rows [n, channels] at an ascending index: a view where it is one run."""
    if len(index) and int(index[-1]) - int(index[0]) + 1 == len(index):
        return rows.narrow(0, int(index[0]), len(index))
    return rows.index_select(0, index.to(rows.device))


class Pod(Planner):
    def __init__(self, part, shape):
        super().__init__(part, shape)
        self.is_local = part.lowest is not None
        self.rows = 0 if self.is_local else ROWS
        self.observed: list[torch.Tensor] = []  # [layer] of [heads, rows, tokens]

    def observe(self, rows, columns):
        if self.rows > 0:
            self.observed.append(rows[:, -self.rows :].cpu())

    @cached_property
    def lowest(self) -> list[list[int]]:
        """The lowest layer of the head's block: [query head][layer]."""
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
        """Layers by whose keys the query heads of a KV head score distant tokens, ascending."""
        return sorted({self.lowest[head][layer] for head in self.heads(kv_head)})

    def _near(self, positions: torch.Tensor, last: int, recent: int) -> torch.Tensor:
        return (positions < self.part["initial"]) | (positions > last - recent)

    def near_keys(self, layer: int, kv_head: int, positions: torch.Tensor, last: int, reach: int) -> torch.Tensor:
        """Which of the keys at these positions the head keeps when `last` is the last token: all where its distant keys
        are read, else the near ones and at least the `reach` last ones. Rows, ascending."""
        if layer in self.sources(layer, kv_head):
            return torch.arange(len(positions))
        return self._near(positions, last, max(self.part["recent"], reach)).nonzero().view(-1)

    def attend(self, band: Band, layer: int, query, sources: list[Source], first: int, scaling, softcap, window):
        """The attention of a band of one KV head on its own near keys and the sources' distant ones, for tokens at
        positions first …: [query heads, tokens, channels]. Also the number of gates looked at, and of those that
        skipped the distant tokens. A token at a time, as what is distant differs."""
        initial, recent, tau = self.part["initial"], self.part["recent"], self.part["tau"]
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
                here = (positions >= initial) & (positions <= position - recent) & (positions >= begin)
                if source.layer != layer:
                    here &= torch.isin(positions, of_values)
                far = here.nonzero().view(-1)
                mine = [head for head in heads if self.lowest[head][layer] == source.layer]
                near_scores = score(query[mine, token], near_keys)
                far_scores = score(source.queries[mine, token].to(query.device), _pick(source.keys, far))
                if tau < 1 and source.layer != layer and len(far):
                    skips = torch.sigmoid(near_scores.logsumexp(-1) - far_scores.logsumexp(-1)) >= tau
                    gates += len(mine)
                    skipped += int(skips.sum())
                    far_scores = far_scores.masked_fill(skips[:, None], float("-inf"))
                weights = torch.softmax(torch.cat([near_scores, far_scores], dim=-1), dim=-1).to(values.dtype)
                far_values = _pick(values, torch.searchsorted(of_values, positions[far]))
                places = [head - heads.start for head in mine]
                out[places, token] = weights[:, : len(near)] @ near_values + weights[:, len(near) :] @ far_values
        return out, gates, skipped
