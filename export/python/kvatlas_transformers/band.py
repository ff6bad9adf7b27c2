# SPDX-License-Identifier: Apache-2.0
"""What a layer holds: bands of neighbouring KV heads that hold equally many tokens."""

from __future__ import annotations

import torch

from .rows import QuantisedRows, Rows


class Band:
    """The `count` KV heads of a layer from `first` on. Rows are in the order of their positions. A head's keys and
    values belong to different positions only where PoD shares keys."""

    def __init__(self, first: int, keys: Rows, values: Rows, key_positions, value_positions=None, lag: bool = False):
        self.first = first
        self.keys, self.values = keys, values
        self.key_positions = key_positions  # [heads, rows], on the CPU
        self._value_positions = value_positions  # None if they are those of the keys
        self.lag = lag  # whether LagKV cuts these heads

    @property
    def count(self) -> int:
        return self.key_positions.shape[0]

    @property
    def value_positions(self) -> torch.Tensor:
        return self.key_positions if self._value_positions is None else self._value_positions

    @property
    def shares(self) -> bool:
        """Whether keys and values are of different positions."""
        return self._value_positions is not None

    def append(self, keys: torch.Tensor, values: torch.Tensor, position: int) -> None:
        """Adds new tokens from `position` on. keys and values are [KV heads of the layer, tokens, channels]."""
        mine = slice(self.first, self.first + self.count)
        new = torch.arange(position, position + keys.shape[1]).expand(self.count, -1)
        self.keys, self.values = self.keys.append(keys[mine]), self.values.append(values[mine])
        self.key_positions = torch.cat([self.key_positions, new], dim=1)
        if self.shares:
            self._value_positions = torch.cat([self._value_positions, new], dim=1)

    def take(self, rows: torch.Tensor) -> None:
        """Keeps only these rows [heads, count]. Where keys are shared, it keeps those of the keys and all values."""
        self.keys = self.keys.take(rows)
        self.key_positions = self.key_positions.gather(1, rows)
        if not self.shares:
            self.values = self.values.take(rows)

    def take_values(self, rows: torch.Tensor) -> None:
        self.values = self.values.take(rows)
        self._value_positions = self._value_positions.gather(1, rows)

    def code(self, before: int) -> None:
        """Quantises what is not quantised yet of the tokens before that position, where 32 tokens are quantised
        together."""
        self.keys = _coded(self.keys, self.key_positions, before)
        self.values = _coded(self.values, self.value_positions, before)

    def forget(self, before: int) -> None:
        """Drops the tokens before that position, of every head as many as the head that has fewest of them."""
        begin = int((self.key_positions < before).sum(1).min())
        if begin > 0:
            self.take(torch.arange(begin, self.key_positions.shape[1]).expand(self.count, -1))

    def tensors(self) -> list[torch.Tensor]:
        return self.keys.tensors() + self.values.tensors()


def _coded(rows: Rows, positions: torch.Tensor, before: int) -> Rows:
    if not isinstance(rows, QuantisedRows):
        return rows
    # Of heads that hold different numbers of such rows, the first that all have.
    tail = positions[:, rows.codes.shape[1] :]
    count = int((tail < before).sum(1).min())
    return rows.code(count) if count else rows
