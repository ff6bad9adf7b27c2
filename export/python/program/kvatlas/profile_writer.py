# SPDX-License-Identifier: Apache-2.0
"""Writes a profile of one sample as docs/profile-format.md has it. `kvatlas merge` joins such files."""

from __future__ import annotations

import json
import os
import pathlib
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

_MOST_CHUNK = 1 << 18  # elements
_TILE, _SMALL_HEAD = 256, 8192
_ATTRIBUTES = ("id", "task", "length", "depth", "seed", "answers", "group", "metric", "all_classes", "language", "max_new_tokens")


@dataclass(frozen=True)
class Prompt:
    """A prompt as a profile keeps it; docs/profile-format.md says what its members are."""

    tokens: list[int]
    id: str = ""
    task: str = ""
    length: int = 0
    depth: float = -1.0
    seed: int = -1
    answers: tuple[str, ...] = ()
    group: str = ""
    metric: str = ""
    all_classes: tuple[str, ...] = ()
    language: str = ""
    max_new_tokens: int = 0
    cut_tokens: int = 0


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _attribute(value: Any) -> Any:
    if isinstance(value, str):
        return np.bytes_(value.encode())
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return np.array([one.encode() for one in value], "S") if value else np.empty(0, "S1")
    if isinstance(value, (list, tuple)):
        return np.array(value, np.int64)
    return np.float64(value) if isinstance(value, float) else np.int64(value)


def _put_attributes(to: h5py.HLObject, values: dict[str, Any]) -> None:
    for name, value in values.items():
        to.attrs[name] = _attribute(value)


def _chunk(shape: tuple[int, ...], single_axes: int) -> tuple[int, ...]:
    """Tiles of an array whose first axes are read one index at a time, else runs of whole rows."""
    if not shape or 0 in shape:
        return tuple(max(1, size) for size in shape)
    chunk = [1] * len(shape)
    if single_axes:
        for axis in range(single_axes, len(shape)):
            chunk[axis] = min(shape[axis], _TILE)
        return tuple(chunk)
    left = _MOST_CHUNK
    for axis in reversed(range(len(shape))):
        chunk[axis] = max(1, min(shape[axis], left))
        left //= chunk[axis]
    return tuple(chunk)


def _put_array(group: h5py.Group, name: str, values: np.ndarray, described: dict[str, Any], codes: dict[str, float], row: bool) -> None:
    chunk = _chunk(values.shape, described["single_axes"])
    dataset = group.create_dataset(
        name, data=values[None] if row else values, chunks=(1, *chunk) if row else chunk, shuffle=True, compression="gzip", compression_opts=1
    )
    axes = ["sample", *described["axes"]] if row else described["axes"]
    _put_attributes(dataset, {"axes": axes, "unit": described["unit"], "meaning": described["meaning"]})
    if described["type"] == "uint8" and described["unit"] == "log2 of a share":
        _put_attributes(dataset, {name: float(codes[name]) for name in ("scale_factor", "add_offset")})


def write_sample(
    path: pathlib.Path, description: dict[str, Any], model: dict[str, Any], plan: dict[str, Any], index: int, prompt: Prompt, arrays: dict[str, np.ndarray]
) -> None:
    """A whole file, or none: it takes its name when everything is on the disk."""
    described = {array["name"]: array for array in description["arrays"] + description["texts"]}
    part = path.with_name(path.name + ".tmp")
    with h5py.File(part, "w", libver="latest") as file:
        _put_attributes(file, {key: description[key] for key in ("schema", "schema_major", "schema_minor", "tool_version")})
        _put_attributes(file, model)
        listed = description["arrays"] + (description["texts"] if "text/ends" in arrays else [])
        _put_attributes(file, {
            "capture": _compact(description["capture"]),
            "prompts": _compact(plan["prompts"]),
            "planned_samples": plan["samples"],
            "complete": int(plan["samples"] == 1),
            "arrays": _compact(listed),
            "axes": [table["axis"] for table in description["axes"]],
        })  # fmt: skip
        for table in description["axes"]:
            values = np.array(table["values"], np.int64).reshape(len(table["labels"]), len(table["columns"]))
            axis = file.create_dataset(f"axes/{table['axis']}", data=values)
            _put_attributes(axis, {"columns": table["columns"], "labels": table["labels"]})
        file.create_dataset("sample_index", data=np.array([index], np.int64))
        sample = file.create_group(f"samples/{index:06d}")
        _put_attributes(sample, {name: getattr(prompt, name) for name in _ATTRIBUTES if name != "max_new_tokens" or prompt.max_new_tokens > 0})
        _put_attributes(sample, {"index": index, "n_tokens": len(prompt.tokens), "cut_tokens": prompt.cut_tokens})
        tokens = np.array(prompt.tokens, np.int32)
        sample.create_dataset("tokens", data=tokens)
        _put_attributes(sample["tokens"], {"axes": ["token"], "unit": "token id", "meaning": "the prompt's tokens"})
        for name, values in arrays.items():
            fixed = bool(described[name]["sizes"])
            _put_array(file["/"] if fixed else sample, f"statistics/{name}" if fixed else name, values, described[name], description["codes"], fixed)
    with open(part, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(part, path)
