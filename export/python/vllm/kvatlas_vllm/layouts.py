# SPDX-License-Identifier: Apache-2.0
"""Where a token's keys and values lie in the arrays of vLLM's caches. Rows are moved as they are, whatever number format
they are in."""

from __future__ import annotations

import torch


class Joined:
    """[blocks, KV heads, slots, channels of the key and then of the value]: FlashAttention."""

    # What a builder of metadata calls the numbers of query heads and of KV heads; none where no head is served apart.
    counts_of_heads: tuple[str, ...] = ()

    def __init__(self, cache: torch.Tensor):
        self.cache = cache
        self.block = cache.shape[2]
        self.heads = torch.arange(cache.shape[1], device=cache.device)[:, None]

    def parts(self) -> list[torch.Tensor]:
        """Arrays whose axes 0, 1 and 2 are block, KV head and slot."""
        return [self.cache]

    def keys_and_values(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[KV heads, slots, channels]."""
        parts = [part[slots // self.block, self.heads, slots % self.block] for part in self.parts()]
        return parts if len(parts) == 2 else parts[0].chunk(2, dim=-1)

    def move(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copies the rows at slots [KV heads, count] to the slots [count]. All are read before any is written."""
        for part in self.parts():
            part[target // self.block, self.heads, target % self.block] = part[source // self.block, self.heads, source % self.block]


class KeysTransposed(Joined):
    """As vLLM's attention on CPUs has it: of each block and KV head first the keys, [channels, slots], and then the
    values, [slots, channels]."""

    counts_of_heads = ("num_heads", "num_kv_heads")

    def parts(self) -> list[torch.Tensor]:
        blocks, heads, slots, both = self.cache.shape
        keys, values = self.cache.view(blocks, heads, 2, slots * both // 2).unbind(2)
        return [keys.view(blocks, heads, both // 2, slots).transpose(2, 3), values.view(blocks, heads, slots, both // 2)]
