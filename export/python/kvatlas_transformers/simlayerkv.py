# SPDX-License-Identifier: Apache-2.0
"""SimLayerKV: lazy layers or KV heads, those that mostly look at the initial and the recent tokens, keep nothing else.
They are known beforehand, or found by their masses on this prompt."""

from __future__ import annotations

from functools import cached_property

import torch

from . import selection
from .planner import Planner


class SimLayerKv(Planner):
    """Also plans the part "heads", whose lazy heads are always known beforehand."""

    def __init__(self, part, shape):
        super().__init__(part, shape)
        self.masses: list[torch.Tensor] = []  # [layer] of [heads]
        if part.lazy is None:
            self._decide_by_input()

    def _decide_by_input(self) -> None:
        self.delay = self.part["identify"] == "decode"
        self.rows = 0 if self.delay else self.part["w_last"]
        self.is_local = not (self.delay or self.part["opposite"])

    def observe(self, rows, columns):
        if self.rows > 0:
            self.observe_first_step(rows[:, -self.rows :])

    def observe_first_step(self, row):
        self.masses.append(selection.proximal_mass(row, *self.part.keep).mean(1))

    def layer_mass(self, layer: int) -> float:
        return float(self.masses[layer].mean())

    def is_lazy(self, mass: float) -> bool:
        return self.part["threshold"] < 1 and mass > self.part["threshold"]

    @property
    def lazy_layers(self) -> list[int]:
        return [layer for layer in range(len(self.masses)) if self.is_lazy(self.layer_mass(layer))]

    @cached_property
    def _opposite_layers(self) -> list[int]:
        """Of the layers that are not lazy those of the smallest mass, as many as are lazy."""
        lazy = self.lazy_layers
        others = sorted(set(range(self.shape.layers)) - set(lazy), key=self.layer_mass)
        return others[: len(lazy)]

    def trimmed(self, layer: int) -> list[bool]:
        """For each KV head of the layer, whether it is trimmed."""
        heads = self.shape.kv_heads
        if self.part.lazy is not None:
            row = self.part.lazy[layer]
            return row * heads if len(row) == 1 else row
        if self.part["opposite"]:
            return [layer in self._opposite_layers] * heads
        if self.part["granularity"] == "head":
            return [self.is_lazy(mass) for mass in self.masses[layer].view(heads, -1).mean(1).tolist()]
        return [self.is_lazy(self.layer_mass(layer))] * heads

    def decided(self):
        lazy = [self.trimmed(layer) for layer in range(self.shape.layers)]
        out = {"lazy": [layer for layer, heads in enumerate(lazy) if all(heads)], "lazy_heads": lazy}
        if self.masses:
            out["mass"] = [self.layer_mass(layer) for layer in range(len(self.masses))]
        return out
