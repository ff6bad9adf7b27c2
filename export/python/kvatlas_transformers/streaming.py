# SPDX-License-Identifier: Apache-2.0
"""Every layer keeps the initial and the recent tokens."""

from __future__ import annotations

import torch

from . import selection
from .band import Band
from .planner import Planner


class Streaming(Planner):
    def selected(self, layer: int, band: Band) -> torch.Tensor:
        return selection.proximal(len(band.keys), *self.part.keep).expand(self.shape.kv_heads, -1)
