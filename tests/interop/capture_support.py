# SPDX-License-Identifier: Apache-2.0
"""What the tests of kvatlas.capture share: the package with the program under test, and how profiles are compared."""

from __future__ import annotations

import os
import pathlib
import sys

import h5py
import numpy as np
import support
import torch
import transformers

sys.path.insert(0, str(support.ROOT / "export/python/program"))

from kvatlas import program  # noqa: E402

# The package of a wheel holds the program; here it is the build's.
program.PROGRAM = pathlib.Path(support.KVATLAS)
program.environment = lambda with_torch=True: dict(os.environ)

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

# Of families whose RoPE turns neighbouring channels, the engine holds those channels as halves.
BY_CHANNEL = "norms/key_range"
# How many of a thousand entries may differ where an order of nearly equal scores, or a rounding, decides.
ROUNDED = 5
# Scores of this size have as many digits behind the point as results are compared by; greater ones have fewer.
GREATEST_SCORE = 16


def settings(**changes) -> dict:
    """Small ones, as capture takes them."""
    return {"map_samples": 1, "budgets": [64, 96, 128], "lags": [32, 64], "recent": [16, 64], "initial": [4]} | changes


def words(of: dict) -> list[str]:
    return program.as_words(of)


def datasets(group: h5py.Group) -> dict[str, h5py.Dataset]:
    found: dict[str, h5py.Dataset] = {}
    group.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    return found


def differences(name: str, ours: np.ndarray, theirs: np.ndarray, within: float) -> str:
    """What sets two arrays apart; "" where nothing does. Numbers count as shares of the greatest."""
    if ours.shape != theirs.shape:
        return f"{name}: {ours.shape} and {theirs.shape}"
    if ours.dtype.kind != "f":
        apart = np.abs(ours.astype(np.int64) - theirs.astype(np.int64)) > 0
    else:
        if not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
            return f"{name}: others are no numbers"
        there = np.isfinite(ours)
        one, other = ours[there].astype(np.float64), theirs[there].astype(np.float64)
        if name == BY_CHANNEL:
            one, other = np.sort(one), np.sort(other)
        most = within * max(1.0, np.abs(other).max(initial=0))
        if name.endswith("logit_sum"):
            most *= 100  # of all of a vocabulary
        if name in ("columns/sums",) or name.endswith("of_token"):
            most = np.abs(other) / 120 + most  # stored as bfloat16
        apart = np.abs(one - other) > most
    count = int(apart.sum())
    allowed = max(1, apart.size * ROUNDED // 1000) if name.startswith(("map/", "rows/", "kept/", "scores/")) else 0
    return f"{name}: {count} of {apart.size} differ" if count > allowed else ""


def compared(ours: os.PathLike, theirs: os.PathLike, within: float = 1e-5) -> list[str]:
    """Everything that two profiles of the same prompts hold."""
    found = []
    with h5py.File(ours) as one, h5py.File(theirs) as other:
        for place in ["statistics", *(f"samples/{name}" for name in other["samples"])]:
            mine, yours = datasets(one[place]), datasets(other[place])
            if (scores := yours.get("lazy/proximal_lse")) is not None:
                within *= max(1.0, float(np.nanmax(np.abs(scores[...]))) / GREATEST_SCORE)
            if set(mine) != set(yours):
                found.append(f"{place}: only one has {sorted(set(mine) ^ set(yours))}")
            found += [differences(name, mine[name][...], yours[name][...], within) for name in sorted(set(mine) & set(yours))]
        for name in sorted({*one.attrs, *other.attrs} - {"backend", "prompts"}):
            if not np.array_equal(one.attrs.get(name), other.attrs.get(name)):
                found.append(f"attribute {name}: {one.attrs.get(name)} and {other.attrs.get(name)}")
    return [what for what in found if what]
