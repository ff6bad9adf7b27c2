# SPDX-License-Identifier: Apache-2.0
"""What a policy is made of: the settings of each part, their ranges and defaults (docs/policy-format.md)."""

from __future__ import annotations

import importlib.resources
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from .errors import PolicyError


@dataclass(frozen=True)
class Whole:
    default: int | None
    least: int
    most: int
    odd: bool = False

    def read(self, value, place: str):
        whole = isinstance(value, int) or isinstance(value, float) and value.is_integer()
        if isinstance(value, bool) or not whole:
            raise PolicyError(f"{place}: found {value!r}, expected a whole number")
        if not self.least <= value <= self.most:
            raise PolicyError(f"{place}: found {value}, expected {self.least} to {self.most}")
        if self.odd and value % 2 == 0:
            raise PolicyError(f"{place}: found {value}, expected an odd number")
        return int(value)


@dataclass(frozen=True)
class Number:
    default: float
    least: float
    most: float

    def read(self, value, place: str):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise PolicyError(f"{place}: found {value!r}, expected a number")
        if not self.least <= value <= self.most:
            raise PolicyError(f"{place}: found {value}, expected {self.least:g} to {self.most:g}")
        return float(value)


@dataclass(frozen=True)
class Word:
    default: str
    words: list[str]

    def read(self, value, place: str):
        if value not in self.words:
            raise PolicyError(f"{place}: found {value!r}, expected one of {', '.join(self.words)}")
        return value


@dataclass(frozen=True)
class Flag:
    default: bool

    def read(self, value, place: str):
        if not isinstance(value, bool):
            raise PolicyError(f"{place}: found {value!r}, expected true or false")
        return value


@dataclass(frozen=True)
class Text:
    default: str
    least: int
    most: int

    def read(self, value, place: str):
        if not isinstance(value, str):
            raise PolicyError(f"{place}: found {value!r}, expected a text")
        if not self.least <= len(value) <= self.most:
            raise PolicyError(f"{place}: {len(value)} characters, expected {self.least} to {self.most}")
        return value


_KINDS = {"whole": Whole, "number": Number, "word": Word, "flag": Flag, "text": Text}


def _read_table() -> dict[str, dict]:
    """The settings of each part by its name. kvatlas writes the file from its own table."""
    table = json.loads(importlib.resources.files(__package__).joinpath("settings.json").read_text("utf-8"))
    return {
        name: {key: _KINDS[row.pop("kind")](**row) for key, row in settings.items()} for name, settings in table.items()
    }


SETTINGS = _read_table()
SETTINGS["heads"] = SETTINGS["streaming"]

# What a part does; a policy has one of each kind at most, applied in this order.
KINDS = {
    "trims layers": ("simlayerkv", "heads", "pyramid-layers", "random-layers"),
    "selects tokens": ("dynamickv", "headkv", "lagkv", "streaming", "window", "snapkv", "pyramidkv", "adakv", "chunkkv", "criticalkv", "h2o",
                       "tova", "keydiff", "expected-attention", "kvzip"),
    "shares keys": ("pod",),
    "stores numbers in fewer bits": ("precision",),
}
NOT_RUN = {
    "decoding": "'kvatlas evaluate' chooses its tokens anew while generating, and this package does not",
    "minicache": "merged layers would have to be stored as directions and norms",
    "share-values": "the shared values would have to be stored as their lengths",
    "quest": "it keeps the whole cache and only reads less of it",
    "vertical-slash": "it keeps the whole cache and only reads less of it",
}


def kept_of_partition(ratio: str, lag: int, place: str = "ratio") -> int:
    """How many tokens of a partition are kept: int(ratio * lag), computed exactly for ratios as "1/6" and "0.25"."""
    fraction = re.fullmatch(r"(\d{1,9})/(\d{1,9})", ratio, re.ASCII)
    decimal = re.fullmatch(r"(\d{0,9})(?:\.(\d{1,9}))?", ratio, re.ASCII)
    if fraction:
        top, bottom = int(fraction[1]), int(fraction[2])
    elif decimal and ratio:
        decimals = decimal[2] or ""
        bottom = 10 ** len(decimals)
        top = int(decimal[1] or "0") * bottom + int(decimals or "0")
    else:
        raise PolicyError(f"{place}: found {ratio!r}, expected a number as 0.25 or 1/4")
    if not 0 < top <= bottom:
        raise PolicyError(f"{place}: found {ratio!r}, expected more than 0 and at most 1")
    return top * lag // bottom


@dataclass(frozen=True)
class ModelShape:
    """What a document says about the model that it is for, as far as transformers can tell it of a model."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    name: str = ""

    @property
    def group(self) -> int:
        """How many query heads share a KV head."""
        return self.heads // self.kv_heads


@dataclass
class Part:
    """One part of a policy: its name ("simlayerkv", "streaming", …), settings, and what calibration has fixed."""

    name: str
    settings: dict
    lazy: list[list[bool]] | None = None  # [layer][KV head], or one entry for all heads of a layer
    budgets: list[int] | list[list[int]] | None = None  # [layer], of HeadKV [layer][KV head]
    lowest: list[list[int]] | None = None  # [query head][layer]
    formats: list[tuple[str, str]] | None = None  # [layer]: of its keys and of its values
    score: Callable | None = None  # the caller's own, in place of a method's

    def __getitem__(self, key: str):
        return self.settings[key]

    @property
    def kind(self) -> str:
        return "selects tokens" if self.score else next(kind for kind, names in KINDS.items() if self.name in names)

    @property
    def keep(self) -> tuple[int, int]:
        """How many initial and how many recent tokens are kept."""
        return self.settings.get("initial", 0), self.settings["recent"]


def read_settings(name: str, given, place: str) -> dict:
    if not isinstance(given, dict):
        raise PolicyError(f"{place}: expected an object")
    known = SETTINGS[name]
    for key in given:
        if key not in known:
            raise PolicyError(f"{place}.{key}: unknown setting; {name} has {', '.join(known)}")
    out = {
        key: setting.read(given[key], f"{place}.{key}") if key in given else setting.default
        for key, setting in known.items()
    }
    if "window" in out and out["budget"] <= out["window"]:
        raise PolicyError(f"{place}.budget: found {out['budget']}, expected more than the window of {out['window']}")
    if out.get("heavy") is not None and out["heavy"] > out["budget"]:
        raise PolicyError(f"{place}.heavy: found {out['heavy']}, expected at most the budget of {out['budget']}")
    if "sink" in out and out.get("budget", out["sink"] + 1) <= out["sink"]:
        raise PolicyError(f"{place}.budget: found {out['budget']}, expected more than the first {out['sink']} tokens")
    if "ratio" in out:
        out["keep"] = kept_of_partition(out["ratio"], out["lag"], f"{place}.ratio")
    return out
