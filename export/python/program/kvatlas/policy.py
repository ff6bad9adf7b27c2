# SPDX-License-Identifier: Apache-2.0
"""Policy documents (docs/policy-format.md) as dataclasses. The program reads and checks them."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from .answers import Picture, drawn_of_document, table_html, table_of
from .errors import KvatlasError
from .model import Model
from .program import run


@dataclass(frozen=True, eq=False)
class Section:
    """One policy of a document."""

    name: str
    settings: dict[str, Any]
    result: dict[str, Any]  # what is decided for each layer or head; lists are arrays
    found: dict[str, Any]  # what calibration and evaluation found: "curve", "savings", "measured" …


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy document. `document` is all of it, as JSON has it."""

    document: dict[str, Any]
    model: Model
    sections: dict[str, Section]
    compose: tuple[str, ...]  # sections that are one policy together; empty: each is one of its own
    kv_bits: int
    runtime: str  # the one that it was calibrated for, or ""
    compared: tuple[dict[str, Any], ...]  # what evaluation found of other policies

    @classmethod
    def load(cls, path: str | os.PathLike) -> Policy:
        """Reads a document. KvatlasError says what is wrong with it, and where."""
        return cls.parse(run("inspect", path, "--json"))

    @classmethod
    def of(cls, document: dict[str, Any]) -> Policy:
        """Checks a document that was made or changed in Python."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "policy.json"
            path.write_text(json.dumps(document), "utf-8")
            try:
                return cls.load(path)
            except KvatlasError as error:
                raise KvatlasError(str(error).replace(str(path), "the document")) from None

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Takes a document that the program printed."""
        document = json.loads(text)
        shape = document["model"]
        layers = shape["layers"]
        model = Model(
            layers=layers,
            heads=shape["heads"],
            kv_heads=shape["kv_heads"],
            head_dim=shape["head_dim"],
            windows=np.array(shape.get("windows", [0] * layers)),
            layer_numbers=np.array(shape.get("layer_numbers", range(layers))),
            name=shape.get("name", ""),
            architecture=shape.get("architecture", ""),
            fingerprint=shape.get("fingerprint", ""),
        )
        sections = {
            name: _section(name, given)
            for name, given in document.items()
            if isinstance(given, dict) and "settings" in given  # which every policy has, and no other member
        }
        return cls(
            document=document,
            model=model,
            sections=sections,
            compose=tuple(document.get("compose", ())),
            kv_bits=document.get("kv_bits", 16),
            runtime=document.get("runtime", ""),
            compared=tuple(document.get("compared", ())),
        )

    def save(self, path: str | os.PathLike) -> None:
        """Writes the document, whole or not at all. What lies at `path` is replaced."""
        path = pathlib.Path(path)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(self.document, file, indent=2)
                file.write("\n")
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise

    def rows(self) -> list[dict[str, Any]]:
        """A row for each policy: its settings, what was measured of it, and how much of it was decided."""
        out = []
        for section in self.sections.values():
            settings = {name: value for name, value in section.settings.items() if not isinstance(value, (dict, list))}
            decided = {f"{name} [{' x '.join(map(str, value.shape))}]": _count(value) for name, value in section.result.items() if isinstance(value, np.ndarray)}
            out.append({"policy": section.name, **settings, **decided})
        return out

    def table(self) -> Any:
        return table_of(self.rows())

    def plot(self, what: str = "comparison-layers", profile: Any = None, **options: Any) -> Picture:
        """A picture of the document (`kvatlas render --what list` names them), beside a profile where it needs one."""
        return drawn_of_document(what, self.document, [] if profile is None else [getattr(profile, "path", profile)], **options)

    def _repr_html_(self) -> str:
        return table_html(self.rows(), f"policies of {self.model.name}")

    def cache(self, model, section: str | None = None, task: str | None = None, *, tokenizer: Any = None, prompt: Any = None):
        """A cache of this policy for a Hugging Face model, as kvatlas_transformers makes it (kvatlas[transformers])."""
        import kvatlas_transformers

        return kvatlas_transformers.load(self.document, section, task).cache(model, tokenizer, prompt)


def _count(values: np.ndarray) -> Any:
    """How many are chosen of a list of yes and no; the mean of numbers."""
    return int(values.sum()) if values.dtype == bool else float(values.mean()) if values.dtype.kind in "if" else None


def _section(name: str, given: dict[str, Any]) -> Section:
    found = {key: value for key, value in given.items() if key not in ("settings", "result")}
    return Section(name, given["settings"], _arrays(given.get("result", {})), found)


def _arrays(value: Any) -> Any:
    """Lists as arrays, also inside of objects; a list of lists of several lengths stays a list of arrays."""
    if isinstance(value, dict):
        return {key: _arrays(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    items = [_arrays(item) for item in value]
    shapes = {np.shape(item) for item in items if not isinstance(item, dict)}
    return np.array(items) if len(shapes) == 1 and not any(isinstance(item, dict) for item in items) else items
