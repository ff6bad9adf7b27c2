# SPDX-License-Identifier: Apache-2.0
"""Which model and tokenizer a profile is of: the program's own fingerprints (`kvatlas inspect`) where the model in memory
is the one of a folder that the program reads, and otherwise hashes of the same kind."""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass
from typing import Any

import torch

from .errors import KvatlasError
from .program import run

_SAMPLE = 32  # numbers


class Fnv1a:
    """FNV-1a with 64 bits, as base/hash.hpp has it."""

    def __init__(self) -> None:
        self.value = 0xCBF29CE484222325

    def add(self, data: bytes) -> None:
        value = self.value
        for byte in data:
            value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        self.value = value

    def number(self, number: int) -> None:
        self.add(number.to_bytes(8, "little"))

    def text(self, text: str) -> None:
        self.add(text.encode() + b"\0")

    def hex(self) -> str:
        return f"{self.value:016x}"


@dataclass(frozen=True)
class Fingerprints:
    name: str
    architecture: str
    model: str
    tokenizer: str


def of_model(model: Any, tokenizer: Any, given: str) -> Fingerprints:
    """given: replaces the model's; the others are found."""
    config = model.config
    source = str(getattr(config, "_name_or_path", "") or "")
    card = _card(source) if source else None
    if card is not None and card.get("fingerprint") and _same_weights(model, source, card):
        return Fingerprints(card["name"], card["architecture"], given or card["fingerprint"], card.get("tokenizer_fingerprint") or of_tokenizer(tokenizer))
    name = pathlib.Path(source).name if source.startswith(("/", ".")) else source
    return Fingerprints(name or type(model).__name__, str(config.model_type), given or of_weights(model), of_tokenizer(tokenizer))


def _card(source: str) -> dict[str, Any] | None:
    """What the program says of the model's folder, or its place in Hugging Face's cache."""
    try:
        return json.loads(run("inspect", source, json=True))
    except (KvatlasError, ValueError):
        return None


def _sampled(values: torch.Tensor) -> torch.Tensor:
    flat = values.detach().reshape(-1)
    return torch.cat([flat[:_SAMPLE], flat[len(flat) // 2 :][:_SAMPLE]]).cpu()


def _same_weights(model: Any, source: str, card: dict[str, Any]) -> bool:
    """Whether the numbers in memory are those of the files, as far as the same names are there."""
    from safetensors import safe_open

    here = dict(model.named_parameters())
    folder = pathlib.Path(card["file"])
    compared = 0
    for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else ():
        with safe_open(file, "pt") as there:
            for name in there.keys():
                if name not in here or here[name].device.type == "meta":
                    continue
                piece = there.get_slice(name)
                if list(piece.get_shape()) != list(here[name].shape) or not piece.get_shape():
                    return False
                first = piece[:1].to(here[name].dtype).reshape(-1)[:_SAMPLE]
                if not torch.equal(first, here[name].detach().reshape(-1)[: len(first)].cpu()):
                    return False
                compared += 1
    return compared > 0


def of_weights(model: Any) -> str:
    """A hash of the configuration and of two short samples of every parameter."""
    found = Fnv1a()
    said = {key: value for key, value in model.config.to_dict().items() if key not in ("_name_or_path", "transformers_version", "dtype", "torch_dtype")}
    found.text(json.dumps(said, sort_keys=True, default=str))
    for name, parameter in model.named_parameters():
        found.text(name)
        found.text(f"{parameter.dtype} {list(parameter.shape)}")
        if parameter.device.type != "meta":  # which lies on a disk that accelerate reads
            found.add(_sampled(parameter).float().numpy().tobytes())
    return found.hex()


def of_tokenizer(tokenizer: Any) -> str:
    if tokenizer is None:
        return ""
    found = Fnv1a()
    for text, number in sorted(tokenizer.get_vocab().items(), key=lambda one: one[1]):
        found.text(f"{number} {text}")
    return found.hex()
