# SPDX-License-Identifier: Apache-2.0
"""Profiles (docs/profile-format.md) as numpy arrays, read from the file when they are asked for."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from .answers import Picture, drawn, table_html, table_of
from .errors import KvatlasError
from .model import Model

_SCHEMA, _MAJOR = "kvatlas.profile", 1
_UNKNOWN = 255  # among codes
_LOG2_SHARE = "log2 of a share"
_MOST_EXPANSION = 1032  # zlib's


class Array:
    """A described array of the file. `array[...]` reads all of it, `array[0, 3]` a part."""

    def __init__(self, name: str, dataset: h5py.Dataset):
        self.name = name
        self._dataset = dataset
        said = _attributes(dataset)
        if not {"axes", "unit", "meaning"} <= set(said):
            raise KvatlasError(f"{dataset.name} does not say its axes, unit and meaning")
        self.axes: tuple[str, ...] = tuple(said["axes"])
        self.unit: str = said["unit"]
        self.meaning: str = said["meaning"]
        self.shape: tuple[int, ...] = dataset.shape
        self.dtype: np.dtype = dataset.dtype

    def __repr__(self) -> str:
        axes = ", ".join(f"{axis} {size}" for axis, size in zip(self.axes, self.shape))
        return f"<kvatlas array {self.name} [{axes}] of {self.dtype}: {self.meaning}>"

    def __getitem__(self, index) -> np.ndarray:
        return self._dataset[index]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self._dataset[...].astype(dtype or self.dtype, copy=False)

    def shares(self, index=...) -> np.ndarray:
        """Of maps and last rows: shares of attention, 0 to 1, in place of their stored logarithms; NaN is not known."""
        if self.unit != _LOG2_SHARE:
            raise KvatlasError(f"{self.name} holds no shares: its unit is {self.unit!r}")
        stored = self._dataset[index]
        if self.dtype != np.uint8:
            return np.exp2(stored.astype(np.float32))
        scale, offset = (float(self._dataset.attrs[key]) for key in ("scale_factor", "add_offset"))
        of_code = np.exp2(np.arange(256, dtype=np.float32) * np.float32(scale) + np.float32(offset))
        of_code[0], of_code[_UNKNOWN] = 0, np.nan
        return of_code[stored]


class _Arrays(Mapping):
    """Arrays of a part of the file by name."""

    def __init__(self, group: h5py.Group | None, where: str, leave_out: tuple[str, ...] = ()):
        self._group, self._where = group, where
        self._names = [name for name in _names(group, where) if name not in leave_out] if group is not None else []

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(f"{self._where} has no {name!r}, only: {', '.join(self._names) or 'nothing'}")
        return Array(name, _dataset(self._group, name, self._where))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, eq=False)
class Axis:
    """The settings that the indices of an axis stand for."""

    columns: tuple[str, ...]
    values: np.ndarray  # [index, column]
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Sample:
    """One prompt of the run, and what was captured of it alone."""

    index: int  # in the plan
    id: str
    task: str
    length: int  # asked for; 0: not a generated prompt
    depth: float  # of what is to be found, 0 to 1; -1: none
    seed: int  # -1: none
    n_tokens: int
    answers: tuple[str, ...]
    attributes: dict[str, Any] = field(repr=False)  # all that the file says of it
    arrays: Mapping[str, Array] = field(repr=False)
    _group: h5py.Group = field(repr=False)

    @property
    def tokens(self) -> np.ndarray:
        return _dataset(self._group, "tokens", self._group.name)[...]

    @property
    def texts(self) -> list[bytes]:
        """The text of each token; bytes, for a token may end inside a character. Empty without a tokenizer."""
        if "text/bytes" not in self.arrays:
            return []
        text = self.arrays["text/bytes"][...].tobytes()
        ends = self.arrays["text/ends"][...].tolist()
        return [text[begin:end] for begin, end in zip([0, *ends], ends)]


class Profile:
    """A profile, which stays open until close() or the end of a `with`."""

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        try:
            self._file = h5py.File(self.path, "r")
        except OSError as error:
            raise KvatlasError(f"{self.path} is no profile that can be read: {error}") from None
        try:
            self._read_root()
        except KvatlasError as error:
            self.close()
            raise KvatlasError(f"{self.path}: {error}") from None

    def _read_root(self) -> None:
        attributes = _attributes(self._file)
        if attributes.get("schema") != _SCHEMA:
            raise KvatlasError(f"no profile: its schema is {attributes.get('schema')!r}, expected {_SCHEMA!r}")
        if attributes.get("schema_major") != _MAJOR:
            raise KvatlasError(f"schema {attributes.get('schema_major')!r}, and this reads {_MAJOR}")
        try:
            layers = attributes["n_layers"]
            self.model = Model(
                layers=layers,
                heads=attributes["n_heads"],
                kv_heads=attributes["n_kv_heads"],
                head_dim=attributes["head_dim"],
                windows=np.asarray(attributes["window"]),
                layer_numbers=np.asarray(attributes.get("layer_numbers", range(layers))),
                name=attributes["model_name"],
                architecture=attributes["architecture"],
                fingerprint=attributes["model_fingerprint"],
            )
            self.tool_version: str = attributes["tool_version"]
            self.backend: str = attributes["backend"]
            self.complete = bool(attributes["complete"])
            self.capture: dict[str, Any] = json.loads(attributes["capture"])
            self.prompts: dict[str, Any] = json.loads(attributes["prompts"])
            self.described: list[dict[str, Any]] = json.loads(attributes["arrays"])
            self._axis_names: list[str] = attributes["axes"]
        except KeyError as error:
            raise KvatlasError(f"the attribute {error} of its root is missing") from None
        except (ValueError, RecursionError) as error:
            raise KvatlasError(f"an attribute of its root holds no JSON: {error}") from None

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def rows(self) -> list[dict[str, Any]]:
        """A row for each sample."""
        names = ("index", "id", "task", "length", "depth", "seed", "n_tokens")
        return [{name: getattr(sample, name) for name in names} for sample in self.samples]

    def table(self) -> Any:
        return table_of(self.rows())

    def plot(self, what: str = "overview", **options: Any) -> Picture:
        """A picture of the profile (`kvatlas render --what list` names them): plot("map", sample=0, at="L3.H2")."""
        return drawn(what, [self.path], **options)

    def _repr_html_(self) -> str:
        said = f"profile of {self.model.name}: {self.model.layers} layers, {self.model.heads} heads on {self.model.kv_heads}, taken on {self.backend}"
        return table_html(self.rows(), said)

    def __repr__(self) -> str:
        return f"<kvatlas profile {self.path} of {self.model.name}>"

    @functools.cached_property
    def sample_index(self) -> np.ndarray:
        """[row of a statistic] which sample of the plan it belongs to."""
        return _dataset(self._file, "sample_index", self.path)[...]

    @functools.cached_property
    def statistics(self) -> Mapping[str, Array]:
        """What has the same sizes in all samples, [sample, …]. A sample without it is a row of NaN; of -1 in integers."""
        return _Arrays(_group(self._file, "statistics"), f"{self.path}: statistics")

    @functools.cached_property
    def axes(self) -> dict[str, Axis]:
        found = {}
        for name in self._axis_names:
            table = _dataset(self._file, f"axes/{name}", self.path)
            said = _attributes(table)
            found[name] = Axis(tuple(said.get("columns", ())), table[...], tuple(said.get("labels", ())))
        return found

    @functools.cached_property
    def samples(self) -> list[Sample]:
        """The samples in the order of the statistics' rows."""
        group = _group(self._file, "samples")
        return [_sample(_group(group, name)) for name in sorted(group or ())]


def _sample(group: h5py.Group) -> Sample:
    attributes = _attributes(group)
    try:
        return Sample(
            **{key: attributes[key] for key in ("index", "id", "task", "length", "depth", "seed", "n_tokens")},
            answers=tuple(attributes["answers"]),
            attributes=attributes,
            arrays=_Arrays(group, group.name, leave_out=("tokens",)),
            _group=group,
        )
    except KeyError as error:
        raise KvatlasError(f"{group.name} lacks the attribute {error}") from None


def _text(value) -> str:
    return bytes(value).decode("utf-8", "replace")


def _texts(values) -> list[str]:
    return [_text(value) for value in np.atleast_1d(values)] if np.size(values) else []


def _attributes(of: h5py.HLObject) -> dict[str, Any]:
    """Attributes as Python has them: texts, numbers, lists of texts and arrays of numbers."""
    out: dict[str, Any] = {}
    for name, value in of.attrs.items():
        if isinstance(value, (bytes, np.bytes_)):
            out[name] = _text(value)
        elif isinstance(value, np.ndarray):
            out[name] = _texts(value) if value.dtype.kind == "S" else value
        elif isinstance(value, np.generic):
            out[name] = value.item()
        else:
            raise KvatlasError(f"{of.name}: the attribute {name!r} is of a kind that profiles do not have")
    return out


def _linked(group: h5py.Group, path: str) -> h5py.HLObject | None:
    """What lies at a path of this very file: links that lead elsewhere are refused."""
    here: Any = group
    for part in path.split("/"):
        if not isinstance(here, h5py.Group) or part not in here:
            return None
        if not isinstance(here.get(part, getlink=True), h5py.HardLink):
            raise KvatlasError(f"{here.name.rstrip('/')}/{part} is a link to elsewhere, which profiles do not have")
        here = here[part]
    return here


def _group(of: h5py.Group | None, name: str) -> h5py.Group | None:
    found = _linked(of, name) if of is not None else None
    if found is not None and not isinstance(found, h5py.Group):
        raise KvatlasError(f"{found.name} is no group")
    return found


def _dataset(group: h5py.Group, name: str, where: str) -> h5py.Dataset:
    found = _linked(group, name)
    if not isinstance(found, h5py.Dataset):
        raise KvatlasError(f"{where} has no array {name!r}")
    if found.is_virtual or found.external or found.dtype.kind not in "fiu":
        raise KvatlasError(f"{found.name} is of a kind that profiles do not have")
    if found.compression not in (None, "gzip") or found.scaleoffset is not None or found.fletcher32:
        raise KvatlasError(f"{found.name} is stored through a filter that profiles do not use")
    stored = found.id.get_storage_size()
    if found.nbytes > _MOST_EXPANSION * stored:
        raise KvatlasError(f"{found.name} claims {found.nbytes} bytes, which its {stored} stored ones cannot hold")
    return found


def _names(group: h5py.Group, where: str, before: str = "", depth: int = 0) -> list[str]:
    """The arrays below a group, as paths."""
    if depth > 8:
        raise KvatlasError(f"{where} is nested too deep")
    found: list[str] = []
    for name in sorted(group):
        item = _linked(group, name)
        path = before + name
        found += _names(item, where, path + "/", depth + 1) if isinstance(item, h5py.Group) else [path]
    return found
