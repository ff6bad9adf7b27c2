# SPDX-License-Identifier: Apache-2.0
"""The plan of a prompt: what every KV head keeps of it, decided by a policy and by what the prefill showed."""

from __future__ import annotations

import torch

from . import selection
from .band import Band
from .best_scored import ChunkKv, CriticalKv, KeyDiff, Scored, Tova
from .budgets import Budgets
from .expected_attention import ExpectedAttention
from .h2o import H2o
from .kvzip import KvZip
from .lagkv import LagKv
from .layer_baseline import LayerBaseline
from .parts import KINDS, ModelShape, Part
from .planner import Planner, Seen
from .pod import Pod
from .simlayerkv import SimLayerKv
from .streaming import Streaming

# The table of parts. Each part has its planner in a file of its own.
PLANNERS = {
    "simlayerkv": SimLayerKv,
    "heads": SimLayerKv,
    "pyramid-layers": LayerBaseline,
    "random-layers": LayerBaseline,
    "streaming": Streaming,
    "window": Streaming,
    "dynamickv": Budgets,
    "headkv": Budgets,
    "snapkv": Budgets,
    "pyramidkv": Budgets,
    "adakv": Budgets,
    "chunkkv": ChunkKv,
    "criticalkv": CriticalKv,
    "expected-attention": ExpectedAttention,
    "tova": Tova,
    "keydiff": KeyDiff,
    "h2o": H2o,
    "kvzip": KvZip,
    "lagkv": LagKv,
    "pod": Pod,
    "precision": Planner,  # it cuts nothing
}


class Plan:
    """What the parts of a policy do to one prompt."""

    def __init__(self, shape: ModelShape, parts: list[Part]):
        self.shape = shape
        planners = {part.kind: (Scored if part.score else PLANNERS[part.name])(part, shape) for part in parts}
        self.trims, self.selects, self.pod, _ = (planners.get(kind) for kind in KINDS)
        self.lag = self.selects if isinstance(self.selects, LagKv) else None
        self.planners = list(planners.values())
        for planner in self.planners:
            planner.trimmed_of = self.trimmed
        self.rows = max((planner.rows for planner in self.planners), default=0)
        self.columns = any(planner.columns for planner in self.planners)
        self.delay = any(planner.delay for planner in self.planners)
        self.is_local = all(planner.is_local for planner in self.planners)

    def observe(self, layer: int, seen: Seen) -> None:
        """What a layer shows of the prompt, and the part of its attention that planners must see."""
        length, rows, columns = seen.key.shape[1], None, None
        how = seen.scaling, seen.softcap, seen.window
        if (needed := min(self.rows, length)) > 0:
            rows = selection.last_rows(seen.query[:, length - needed :], seen.key, length - needed, *how)
        if self.columns:
            columns = selection.column_sums(seen.query, seen.key, *how)
        for planner in self.planners:
            planner.look(layer, seen)
            planner.observe(rows, columns)

    def observe_first_step(self, row: torch.Tensor) -> None:
        for planner in self.planners:
            planner.observe_first_step(row)

    def trimmed(self, layer: int) -> list[bool]:
        """For each KV head of the layer, whether it keeps only its initial and recent tokens."""
        return self.trims.trimmed(layer) if self.trims else [False] * self.shape.kv_heads

    def cut_by_lag(self, layer: int, kv_head: int) -> bool:
        """Whether LagKV cuts the head."""
        return self.lag is not None and self.lag.cuts(layer) and not self.trimmed(layer)[kv_head]

    def kept(self, layer: int, band: Band) -> list[torch.Tensor]:
        """The positions that each KV head of a layer keeps. `band` holds the whole layer."""
        length, trimmed = len(band.keys), self.trimmed(layer)
        chosen = None
        if self.selects and not all(trimmed):
            chosen = self.selects.selected(layer, band)
        window = selection.proximal(length, *self.trims.part.keep) if any(trimmed) else None
        everything = torch.arange(length)
        out = []
        for head, is_trimmed in enumerate(trimmed):
            out.append(window if is_trimmed else everything if chosen is None else chosen[head])
        return out

    def decided(self) -> dict:
        """What was decided on this prompt, for reports."""
        return {key: value for planner in self.planners for key, value in planner.decided().items()}

    def forget(self) -> None:
        for planner in self.planners:
            planner.forget()
