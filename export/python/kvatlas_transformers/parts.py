# SPDX-License-Identifier: Apache-2.0
"""What a policy is made of: the settings of each part, their ranges and defaults (docs/policy-format.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import PolicyError

MOST_TOKENS = 1 << 24
MOST_LAYERS = 4096


@dataclass(frozen=True)
class Whole:
    default: int | None
    low: int
    high: int

    def read(self, value, place: str):
        whole = isinstance(value, int) or isinstance(value, float) and value.is_integer()
        if isinstance(value, bool) or not whole:
            raise PolicyError(f"{place}: found {value!r}, expected a whole number")
        if not self.low <= value <= self.high:
            raise PolicyError(f"{place}: found {value}, expected {self.low} to {self.high}")
        return int(value)


@dataclass(frozen=True)
class Number:
    default: float
    low: float
    high: float

    def read(self, value, place: str):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise PolicyError(f"{place}: found {value!r}, expected a number")
        if not self.low <= value <= self.high:
            raise PolicyError(f"{place}: found {value}, expected {self.low:g} to {self.high:g}")
        return float(value)


@dataclass(frozen=True)
class Word:
    default: str
    words: tuple[str, ...]

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

    def read(self, value, place: str):
        if not isinstance(value, str):
            raise PolicyError(f"{place}: found {value!r}, expected a text")
        return value


_WINDOW = {"initial": Whole(4, 0, MOST_TOKENS), "recent": Whole(1024, 1, MOST_TOKENS)}
_LAYERS = {"threshold": Number(0.9, 0, 1), "layers": Whole(None, 0, MOST_LAYERS), **_WINDOW}
_BUDGET = {
    "window": Whole(16, 1, 4096),
    "budget": Whole(128, 2, MOST_TOKENS),
    "kernel": Whole(7, 1, 4095),
    "pooling": Word("avg", ("avg", "max")),
}

SETTINGS = {
    "simlayerkv": {
        "threshold": Number(0.9, 0, 1),
        **_WINDOW,
        "identify": Word("decode", ("decode", "prefill")),
        "w_last": Whole(32, 1, 4096),
        "granularity": Word("layer", ("layer", "head")),
        "opposite": Flag(False),
    },
    "heads": _WINDOW,
    "pod": {
        "delta": Number(0.5, 0, 1),
        "initial": Whole(16, 0, MOST_TOKENS),
        "recent": Whole(4080, 1, MOST_TOKENS),
        "granularity": Word("kv-head", ("kv-head", "head")),
        "tau": Number(1, 0, 1),
        "blocks": Text(""),
    },
    "dynamickv": {**_BUDGET, "r_max": Number(10, 1, 1e6)},
    "lagkv": {
        "sink": Whole(16, 0, MOST_TOKENS),
        "lag": Whole(128, 2, MOST_TOKENS),
        "ratio": Text("1/4"),
        "variant": Word("lag", ("lag", "local", "l2")),
    },
    "streaming": _WINDOW,
    "window": {"recent": _WINDOW["recent"]},
    "snapkv": _BUDGET,
    "pyramidkv": _BUDGET,
    "h2o": {"budget": Whole(128, 2, MOST_TOKENS)},
    "pyramid-layers": _LAYERS,
    "random-layers": {
        **_LAYERS,
        "from": Word("all", ("lower", "upper", "all")),
        "seed": Whole(0, 0, (1 << 64) - 1),
    },
}

# What a part does; a policy has one of each kind at most, applied in this order.
KINDS = {
    "trims layers": ("simlayerkv", "heads", "pyramid-layers", "random-layers"),
    "selects tokens": ("dynamickv", "lagkv", "streaming", "window", "snapkv", "pyramidkv", "h2o"),
    "shares keys": ("pod",),
}
NOT_RUN = {
    "minicache": "merged layers would have to be stored as directions and norms",
    "quest": "it keeps the whole cache and only reads less of it",
}


def kept_of_partition(ratio: str, lag: int, place: str = "ratio") -> int:
    """int(ratio * lag), exactly, for "1/6" and "0.25"."""
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


@dataclass
class Part:
    """One part of a policy: its name ("simlayerkv", "streaming", …), settings, and what calibration has fixed."""

    name: str
    settings: dict
    lazy: list[list[bool]] | None = None  # [layer][KV head or one for all]
    budgets: list[int] | None = None  # [layer]
    lowest: list[list[int]] | None = None  # [query head][layer]

    def __getitem__(self, key: str):
        return self.settings[key]

    @property
    def kind(self) -> str:
        return next(kind for kind, names in KINDS.items() if self.name in names)

    @property
    def keep(self) -> tuple[int, int]:
        """Initial and recent tokens kept."""
        return self.settings.get("initial", 0), self.settings["recent"]

    @property
    def decides_while_decoding(self) -> bool:
        if self.name == "simlayerkv":
            return self.lazy is None and self["identify"] == "decode"
        return self.name in ("pyramid-layers", "random-layers") and self["layers"] is None


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
    if "kernel" in out and out["kernel"] % 2 == 0:
        raise PolicyError(f"{place}.kernel: found {out['kernel']}, expected an odd number")
    if "window" in out and out["budget"] <= out["window"]:
        raise PolicyError(f"{place}.budget: found {out['budget']}, expected more than the window of {out['window']}")
    if "ratio" in out:
        out["keep"] = kept_of_partition(out["ratio"], out["lag"], f"{place}.ratio")
    return out
