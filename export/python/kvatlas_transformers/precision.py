# SPDX-License-Identifier: Apache-2.0
"""The number formats that keys and values are stored in (docs/precision.md)."""

from __future__ import annotations

import torch

from .errors import PolicyError
from .parts import ModelShape, Part
from .rows import GROUP, QuantisedRows, Rows, gather, pack, unpack

KNOWN = ("16", "fp8", "q8_0", "q4_0", "int4", "int2")  # the formats that are carried out here
LEAST_ROTATED = 64  # llama.cpp rotates heads of a multiple of so many channels


class Fp8:
    """8-bit floating point (E4M3) with the scale 1."""

    def encode(self, rows: torch.Tensor) -> list[torch.Tensor]:
        return [rows.float().clamp(-448, 448).to(torch.float8_e4m3fn)]

    def decode(self, codes: list[torch.Tensor]) -> torch.Tensor:
        return codes[0].float()


class Blocks:
    """llama.cpp's q8_0 and q4_0: 32 channels of a token share a scale, a float16. Rows of a multiple of 64 channels are
    rotated before they are rounded, which spreads large numbers over all channels, and rotated back when they are read."""

    def __init__(self, bits: int, channels: int, of_keys: bool):
        self.bits, self.channels = bits, channels
        self.order = LEAST_ROTATED if channels % LEAST_ROTATED == 0 else 1
        while of_keys and self.order > 1 and channels % (2 * self.order) == 0:
            self.order *= 2

    def rotated(self, rows: torch.Tensor) -> torch.Tensor:
        """By the Walsh-Hadamard matrix, which is its own inverse."""
        if self.order == 1:
            return rows
        matrix = torch.full((1, 1), self.order**-0.5, device=rows.device)
        while len(matrix) < self.order:
            matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
        return (rows.unflatten(-1, (-1, self.order)) @ matrix).flatten(-2)

    def encode(self, rows: torch.Tensor) -> list[torch.Tensor]:
        blocks = torch.nn.functional.pad(self.rotated(rows.float()), (0, -self.channels % GROUP)).unflatten(-1, (-1, GROUP))
        if self.bits == 8:
            scale = blocks.abs().amax(-1, keepdim=True) / 127
        else:  # the number of the largest size, whatever its sign, becomes -8
            scale = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True)) / -8
        inverse = torch.where(scale == 0, 0.0, 1 / scale)
        if self.bits == 8:
            scaled = blocks * inverse
            codes = (torch.trunc(2 * scaled) - torch.trunc(scaled)).to(torch.int8)  # halves away from zero
        else:
            codes = (blocks.double() * inverse.double() + 8.5).clamp(0, 15).to(torch.uint8)
        codes = codes.flatten(-2)[..., : self.channels].contiguous()
        return [codes if self.bits == 8 else pack(codes, self.bits), scale.squeeze(-1).half()]

    def decode(self, codes: list[torch.Tensor]) -> torch.Tensor:
        numbers, scales = codes
        if self.bits == 4:
            numbers = unpack(numbers, self.bits, self.channels).to(torch.int8) - 8
        return self.rotated(numbers.float() * scales.float().repeat_interleave(GROUP, dim=-1)[..., : self.channels])


class RoundedRows(Rows):
    """Rows in a format in which each token is rounded by itself, as soon as it is there."""

    def __init__(self, form: Fp8 | Blocks, codes: list[torch.Tensor], dtype: torch.dtype):
        self.form, self.codes, self.dtype = form, codes, dtype

    def _with(self, codes: list[torch.Tensor]) -> RoundedRows:
        return RoundedRows(self.form, codes, self.dtype)

    def __len__(self) -> int:
        return self.codes[0].shape[1]

    def all(self) -> torch.Tensor:
        return self.form.decode(self.codes).to(self.dtype)

    def append(self, rows: torch.Tensor) -> RoundedRows:
        return self._with([torch.cat(both, dim=1) for both in zip(self.codes, self.form.encode(rows))])

    def take(self, index: torch.Tensor) -> RoundedRows:
        index = index.to(self.codes[0].device)
        return self._with([gather(codes, index) for codes in self.codes])

    def heads(self, first: int, count: int) -> RoundedRows:
        return self._with([codes[first : first + count] for codes in self.codes])

    def tensors(self) -> list[torch.Tensor]:
        return self.codes


def stored(data: torch.Tensor, word: str, of_keys: bool, count: int) -> Rows:
    """Keys, or values, [heads, tokens, channels] in the format of this name. Where it rounds 32 tokens together, only
    the first `count` tokens are rounded."""
    if word == "16":
        return Rows(data)
    if word in ("int4", "int2"):
        return QuantisedRows.of(data[:, :count], int(word[3:]), of_keys).append(data[:, count:])
    form = Fp8() if word == "fp8" else Blocks(int(word[1]), data.shape[-1], of_keys)
    return RoundedRows(form, form.encode(data), data.dtype)


def spared(layers: list[tuple[str, str]], skip: str) -> list[tuple[str, str]]:
    """The same with 16 bits in the layers that `skip` names, as 0:1:-2:-1."""
    layers = list(layers)
    for word in skip.split(":") if skip else ():
        if not word.removeprefix("-").isdecimal() or not -len(layers) <= int(word) < len(layers):
            raise PolicyError(f"precision: skip names {word!r}, and the model has {len(layers)} layers")
        layers[int(word)] = ("16", "16")
    return layers


class Formats:
    """The formats in which the layers of a model store their keys and values."""

    def __init__(self, shape: ModelShape, parts: list[Part], kv_bits: int):
        everywhere = ("16", "16") if kv_bits == 16 else (f"int{kv_bits}", f"int{kv_bits}")
        self.layers = [everywhere] * shape.layers
        self.rounds_prompt = False
        for part in parts:
            if part.name == "precision":
                self.layers = part.formats or [(part["keys"], part["values"])] * shape.layers
                self.rounds_prompt = part["prefill"] == "rounded"
                self.layers = spared(self.layers, part["skip"])
                if part["queries"] != "exact" or part["chunk"] > 0:
                    raise PolicyError("precision: queries=fp8 and chunk are for 'kvatlas evaluate', not for this cache")
        for word in sorted({word for layer in self.layers for word in layer}.difference(KNOWN)):
            raise PolicyError(f"precision: this cache has no format {word!r}, only {', '.join(KNOWN)}")

    def as_read(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values of a prompt [heads, tokens, channels], rounded."""
        tokens, (of_keys, of_values) = keys.shape[1], self.layers[layer]
        return stored(keys, of_keys, True, tokens).all(), stored(values, of_values, False, tokens).all()
