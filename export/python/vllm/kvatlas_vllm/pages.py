# SPDX-License-Identifier: Apache-2.0
"""Where rows lie whose KV heads keep different numbers of tokens. A block has a page for each head, and any head may take
any of them: pages are handed out in the order in which they are needed, from the first block on that is not free."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Pages:
    """Of a request whose heads keep `kept` rows each of a prompt, and then each new token."""

    kept: tuple[int, ...]
    block: int
    freed: int  # of the request's first blocks

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of(cls, kept: tuple[int, ...], prompt: int, block: int) -> Pages:
        def blocks(more: int) -> int:
            return -(-sum(-(-(rows + more) // block) for rows in kept) // len(kept))

        # Whenever a block's worth of tokens is there, each head needs one page more, and there is one block more.
        return cls(kept, block, min(-(-(prompt + more) // block) - blocks(more) for more in range(block)))

    @functools.cached_property
    def first_pages(self) -> list[int]:
        return [-(-rows // self.block) for rows in self.kept]

    @functools.cached_property
    def order(self) -> list[int]:
        """Of the heads, by which of them is the first to need a page more."""
        heads = range(len(self.kept))
        ranks = sorted(heads, key=lambda head: (-self.kept[head] % self.block, head))
        return [ranks.index(head) for head in heads]

    def places(self, head: int, pages: torch.Tensor) -> torch.Tensor:
        """Of a head's pages, by their numbers, the places among all pages of the blocks that are not free."""
        heads, first = len(self.kept), self.first_pages
        later = sum(first) + (pages - first[head]) * heads + self.order[head]
        return torch.where(pages < first[head], sum(first[:head]) + pages, later)

    def slots(self, blocks: torch.Tensor, head: int, rows: torch.Tensor) -> torch.Tensor:
        """Of a head's rows, by their numbers, the slots in an array of pages. `blocks` are the request's blocks."""
        return self.numbers(blocks, head, rows // self.block) * self.block + rows % self.block

    def numbers(self, blocks: torch.Tensor, head: int, pages: torch.Tensor) -> torch.Tensor:
        """Of a head's pages the numbers in an array of pages."""
        places, heads = self.places(head, pages), len(self.kept)
        columns = (self.freed + places // heads).clamp(max=len(blocks) - 1)
        return blocks[columns].long() * heads + places % heads
