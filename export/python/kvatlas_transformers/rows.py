# SPDX-License-Identifier: Apache-2.0
"""Keys or values of some KV heads, one row for each token, either as they are or quantised."""

from __future__ import annotations

import torch

GROUP = 32  # so many values share a scale and a minimum


def gather(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Of rows [heads, n, …] those at index [heads, m]."""
    if rows.dtype == torch.float8_e4m3fn:  # which torch.gather does not take
        return gather(rows.view(torch.uint8), index).view(rows.dtype)
    shape = index.shape + (1,) * (rows.dim() - 2)
    return torch.gather(rows, 1, index.view(shape).expand(index.shape + rows.shape[2:]))


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes of 4 or 2 bits, as many of neighbouring channels in a byte as fit."""
    each = 8 // bits
    missing = -codes.shape[-1] % each
    if missing:
        codes = torch.nn.functional.pad(codes, (0, missing))
    codes = codes.unflatten(-1, (-1, each))
    packed = codes[..., 0].clone()
    for place in range(1, each):
        packed |= codes[..., place] << (place * bits)
    return packed


def unpack(packed: torch.Tensor, bits: int, channels: int) -> torch.Tensor:
    places = [(packed >> (place * bits)) & ((1 << bits) - 1) for place in range(8 // bits)]
    return torch.stack(places, dim=-1).flatten(-2)[..., :channels]


class Rows:
    """[heads, tokens, channels], as the model made them."""

    def __init__(self, data: torch.Tensor):
        self.data = data

    def __len__(self) -> int:
        return self.data.shape[1]

    def all(self) -> torch.Tensor:
        return self.data

    def append(self, rows: torch.Tensor) -> "Rows":
        return Rows(torch.cat([self.data, rows], dim=1))

    def take(self, index: torch.Tensor) -> "Rows":
        """The rows at index [heads, count], ascending, in memory of their own."""
        return Rows(gather(self.data, index.to(self.data.device)))

    def heads(self, first: int, count: int) -> "Rows":
        return Rows(self.data[first : first + count])

    def tensors(self) -> list[torch.Tensor]:
        return [self.data]


class QuantisedRows(Rows):
    """The first rows in 4 or 2 bits, and behind them, in the tail, the last rows as they are.

    Keys are quantised by channel: 32 tokens of one channel share a scale; values by token: 32 channels of one token.
    An element is minimum + code * scale, the two as float16."""

    def __init__(self, like: "QuantisedRows | None" = None, **changes):
        self.bits = self.channels = 0
        self.by_channel = False
        self.codes = self.scales = self.minima = self.tail = None
        self.groups = None  # by channel: the group of each coded row [heads, tokens]; None if each 32 rows are one
        self.__dict__.update({} if like is None else vars(like))
        self.__dict__.update(changes)

    @classmethod
    def of(cls, data: torch.Tensor, bits: int, by_channel: bool) -> "QuantisedRows":
        heads, tokens, channels = data.shape
        most = (1 << bits) - 1
        axis = 1 if by_channel else 2
        lows, highs = [], []
        for part in data.float().split(GROUP, dim=axis) if data.shape[axis] else []:
            lows.append(part.amin(axis, keepdim=True))
            highs.append(part.amax(axis, keepdim=True))
        low, high = (torch.cat(parts, axis) if parts else data.float() for parts in (lows, highs))
        scales, minima = ((high - low) / most).half(), low.half()
        out = cls(bits=bits, channels=channels, by_channel=by_channel, scales=scales, minima=minima)
        out.tail = data[:, :0].clone()
        out.codes = torch.empty((heads, tokens, 0), device=data.device)
        scale, minimum = out._spread(out.scales), out._spread(out.minima)
        inverse = torch.where(scale == 0, 0.0, 1 / scale)
        codes = torch.round((data.float() - minimum) * inverse).clamp(0, most).to(torch.uint8)
        out.codes = pack(codes, bits)
        return out

    def _spread(self, of_groups: torch.Tensor) -> torch.Tensor:
        """Scales or minima for every element, in float32."""
        if self.by_channel and self.groups is None:
            return of_groups.float().repeat_interleave(GROUP, dim=1)[:, : self.codes.shape[1]]
        if self.by_channel:
            return gather(of_groups.float(), self.groups.long())
        return of_groups.float().repeat_interleave(GROUP, dim=2)[..., : self.channels]

    def _restored(self) -> torch.Tensor:
        values = self._spread(self.minima) + unpack(self.codes, self.bits, self.channels).float() * self._spread(self.scales)
        return values.to(self.tail.dtype)

    def __len__(self) -> int:
        return self.codes.shape[1] + self.tail.shape[1]

    def all(self) -> torch.Tensor:
        return torch.cat([self._restored(), self.tail], dim=1)

    def append(self, rows: torch.Tensor) -> "QuantisedRows":
        return QuantisedRows(self, tail=torch.cat([self.tail, rows], dim=1))

    def take(self, index: torch.Tensor) -> "QuantisedRows":
        index = index.to(self.codes.device)
        old = self.codes.shape[1]
        inside = index < old
        counts = inside.sum(1)
        # If some heads keep more of the prompt's rows than others, those beyond the fewest are restored into the tail.
        count = int(counts.min())
        kept, rest = index[:, :count], index[:, count:]
        tail = gather(self.all(), rest) if bool((counts > count).any()) else gather(self.tail, rest - old)
        out = QuantisedRows(self, codes=gather(self.codes, kept), tail=tail)
        if not self.by_channel:
            out.scales, out.minima = gather(self.scales, kept), gather(self.minima, kept)
            return out
        # Groups are dropped once no head has a row of them left.
        groups = kept // GROUP if self.groups is None else self.groups.gather(1, kept)
        used, groups = torch.unique(groups, return_inverse=True)
        regular = torch.arange(kept.shape[1], device=kept.device) // GROUP
        out.groups = None if torch.equal(groups, regular.expand_as(groups)) else groups.to(torch.int32)
        out.scales, out.minima = self.scales[:, used.long()], self.minima[:, used.long()]
        return out

    def code(self, count: int) -> "QuantisedRows":
        """The first `count` rows of the tail join the codes, as a group of their own."""
        more = QuantisedRows.of(self.tail[:, :count], self.bits, self.by_channel)
        both = {name: torch.cat([getattr(self, name), getattr(more, name)], dim=1) for name in ("codes", "scales", "minima")}
        old = self.codes.shape[1]
        groups = self.groups
        if self.by_channel and (groups is not None or old % GROUP):
            if groups is None:
                groups = torch.arange(old, device=self.codes.device).div(GROUP, rounding_mode="floor")
                groups = groups.to(torch.int32).expand(self.codes.shape[0], -1)
            new = torch.arange(count, device=groups.device).div(GROUP, rounding_mode="floor") + self.scales.shape[1]
            groups = torch.cat([groups, new.to(torch.int32).expand(groups.shape[0], -1)], dim=1)
        return QuantisedRows(self, **both, tail=self.tail[:, count:].clone(), groups=groups)

    def heads(self, first: int, count: int) -> "QuantisedRows":
        part = slice(first, first + count)
        changes = {name: getattr(self, name)[part] for name in ("codes", "scales", "minima", "tail")}
        groups = None if self.groups is None else self.groups[part]
        return QuantisedRows(self, groups=groups, **changes)

    def tensors(self) -> list[torch.Tensor]:
        tensors = [self.codes, self.scales, self.minima, self.tail]
        return tensors if self.groups is None else [*tensors, self.groups]
