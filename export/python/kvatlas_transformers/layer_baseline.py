# SPDX-License-Identifier: Apache-2.0
"""The baselines of SimLayerKV: they trim as many layers as it would, but the highest ones or layers drawn by a
seed."""

from __future__ import annotations

from functools import cached_property

from . import selection
from .errors import PolicyError
from .simlayerkv import SimLayerKv


class LayerBaseline(SimLayerKv):
    def __init__(self, part, shape):
        super().__init__(part, shape)
        if part.settings.get("shape", "top") == "linear":
            raise PolicyError("pyramid-layers: shape=linear is simulated by kvatlas alone; this package runs shape=top")

    def _decide_by_input(self) -> None:
        self.delay = self.part["layers"] is None
        self.is_local = False

    @cached_property
    def _layers(self) -> list[int]:
        layers, given = self.shape.layers, self.part["layers"]
        count = len(self.lazy_layers) if given is None else given
        if self.part.name == "pyramid-layers":
            return list(range(layers)[max(0, layers - count) :])
        half = {"lower": range(layers // 2), "upper": range(layers // 2, layers), "all": range(layers)}
        return selection.drawn_layers(self.part["seed"], half[self.part["from"]], count)

    def trimmed(self, layer: int) -> list[bool]:
        return [layer in self._layers] * self.shape.kv_heads
