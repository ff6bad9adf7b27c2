# SPDX-License-Identifier: Apache-2.0
"""LagKV: a partition of tokens is cut as soon as the next one is complete, first in the prompt and then while
decoding."""

from __future__ import annotations

import torch

from . import selection
from .band import Band
from .planner import Planner


class LagKv(Planner):
    def cuts(self, layer: int) -> bool:
        """Whether the layer is cut: the variant "l2" leaves the first two layers whole."""
        return self.part["variant"] != "l2" or layer >= 2

    def partitions(self, length: int) -> int:
        """How many partitions are cut once there are so many tokens."""
        return max(0, (length - self.part["sink"]) // self.part["lag"] - 1)

    def selected(self, layer: int, band: Band) -> torch.Tensor | None:
        wanted = self.partitions(len(band.keys))
        return self.kept_rows(band, 0, wanted) if wanted > 0 and self.cuts(layer) else None

    def kept_rows(self, band: Band, done: int, wanted: int) -> torch.Tensor:
        """The rows of the band's keys that stay when the partitions from `done` to wanted - 1 are cut: [heads, rows].
        Each partition is scored against the next one."""
        part, size = self.part, self.part["lag"]
        begin, length = part["sink"] + done * size, (wanted - done) * size
        shape = (band.count, wanted - done + 1, size, -1)

        def partitions(rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            row = int((positions[0] < begin).sum())
            return rows[:, row : row + length + size].reshape(shape)

        return selection.lag_kept(
            partitions(band.keys.all(), band.key_positions),
            partitions(band.values.all(), band.value_positions),
            part["keep"],
            part["variant"],
            int((band.key_positions[0] < begin).sum()),
            len(band.keys),
        )
