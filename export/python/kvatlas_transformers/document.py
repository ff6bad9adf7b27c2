# SPDX-License-Identifier: Apache-2.0
"""Reads a policy document, kvatlas.policy/1 (docs/policy-format.md)."""

from __future__ import annotations

import json
import os
import re

from .errors import PolicyError
from .parts import KINDS, NOT_RUN, SETTINGS, ModelShape, Part, read_settings
from .policy import Policy

MAJOR, MINOR = 1, 0
LARGEST = 64 << 20
DEEPEST = 24
SECTIONS = ("simlayerkv", "pod", "dynamickv", "headkv", "lagkv", "precision", "baseline", "heads")
MEMBERS = ("schema", "model", "provenance", *SECTIONS, "compose", "kv_bits", "kv_residual", "runtime", "pareto", "search",
           "compared")
MODEL_MEMBERS = ("name", "architecture", "fingerprint", "layers", "heads", "kv_heads", "head_dim", "windows")
# Of models whose layers are not all attention with heads alike, which the caches here are made for.
OTHER_CACHES = ("layer_numbers", "cached_values", "latent_rank")
RESULTS = {
    "simlayerkv": ("lazy_layers", "lazy_heads"),
    "heads": ("lazy_heads",),
    "pod": ("lowest",),
    "dynamickv": ("budgets", "tasks"),
    "headkv": ("budgets",),
    "lagkv": ("kept",),
    "precision": ("keys", "values"),
    "baseline": (),
}


def load(path, section: str | None = None, task: str | None = None) -> Policy:
    """The policy of a document, which is given as the path of its file or as a dict.

    section: which policy, if the document holds several. task: take the budgets that DynamicKV has for this task."""
    if isinstance(path, dict):
        return _policy(path, section, task)
    name = os.fspath(path)
    try:
        return _policy(_read(name), section, task)
    except PolicyError as error:
        raise PolicyError(f"{name}: {error}") from None


def _read(name: str):
    try:
        with open(name, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise PolicyError(f"cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise PolicyError(f"expected a policy document of at most {LARGEST >> 20} MiB")

    def refuse(text):
        raise PolicyError(f"no JSON: {text} is no number")

    try:
        document = json.loads(data.decode("utf-8"), parse_constant=refuse)
    except UnicodeDecodeError:
        raise PolicyError("no JSON: it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise PolicyError(f"no JSON: {error}") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, PolicyError):
            raise
        raise PolicyError("no JSON that can be read: nested too deep, or a number too long") from None
    _check_depth(document, DEEPEST)
    return document


def _check_depth(value, left: int) -> None:
    if left < 0:
        raise PolicyError(f"nested more than {DEEPEST} levels deep")
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, (dict, list)):
                _check_depth(item, left - 1)


def _policy(document, section: str | None, task: str | None) -> Policy:
    minor = _minor(document)
    unknown = sorted(set(document) - set(MEMBERS))
    if unknown and minor <= MINOR:
        raise PolicyError(f"there is no member {unknown[0]!r} in kvatlas.policy/{MAJOR}.{minor}")
    shape = _shape(document.get("model"))
    bits = document.get("kv_bits", 16)
    if isinstance(bits, bool) or bits not in (16, 4, 2):
        raise PolicyError(f"kv_bits: found {bits!r}, expected 16, 4 or 2")
    residual = _count(document.get("kv_residual", 0), "kv_residual")
    if residual and bits == 16:
        raise PolicyError("kv_residual: the last tokens stay at 16 bits, and no others are stored in fewer")
    names = [name for name in SECTIONS if name in document]
    for name in names:
        if not isinstance(document[name], dict):
            raise PolicyError(f"{name}: expected an object")
    compose = _compose(document, names)
    # The full cache in fewer bits is a policy without a section.
    chosen = [] if not names and bits != 16 and section is None else _choose(names, compose, section)
    parts = [_part(name, document[name], shape, task) for name in chosen]
    if task is not None and "dynamickv" not in chosen:
        raise PolicyError(f"task {task!r}: only DynamicKV has budgets by task, and it is not in this policy")
    kinds = list(KINDS)
    parts.sort(key=lambda part: kinds.index(part.kind))
    for first, second in zip(parts, parts[1:]):
        if first.kind == second.kind:
            raise PolicyError(f"compose: {first.name!r} and {second.name!r} are both a part that {first.kind}")
    if bits != 16 and "precision" in chosen:
        raise PolicyError(f"kv_bits of {bits} and 'precision' both say how numbers are stored")
    return Policy(shape, parts, bits, residual)


def _minor(document) -> int:
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        raise PolicyError("no policy document: it has no 'schema'")
    found = re.fullmatch(r"kvatlas\.policy/(\d{1,6})\.(\d{1,6})", document["schema"], re.ASCII)
    if not found or int(found[1]) < 1:
        raise PolicyError(f"schema is {document['schema'][:40]!r}, expected kvatlas.policy/{MAJOR}.{MINOR}")
    if int(found[1]) > MAJOR:
        raise PolicyError(f"schema is {document['schema']!r}, a newer major version than {MAJOR}, which this reads")
    return int(found[2])


def _shape(model) -> ModelShape:
    if not isinstance(model, dict):
        raise PolicyError("model: missing, or no object")
    for key in model:
        if key in OTHER_CACHES:
            raise PolicyError(f"model.{key}: this package runs models whose layers all have attention with heads alike")
        if key not in MODEL_MEMBERS:
            raise PolicyError(f"model.{key}: unknown")
    counts = {}
    for key, most in (("layers", 4096), ("heads", 65536), ("kv_heads", 65536), ("head_dim", 65536)):
        value = model.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise PolicyError(f"model.{key}: found {value!r}, expected 1 to {most}")
        counts[key] = value
    # Nothing here depends on them, for the model's own code masks what lies before its windows.
    windows = model.get("windows", [0] * counts["layers"])
    if not isinstance(windows, list) or len(windows) != counts["layers"]:
        raise PolicyError(f"model.windows: found {windows!r}, expected a number for each of {counts['layers']} layers")
    shape = ModelShape(name=str(model.get("name", "")), **counts)
    if shape.heads % shape.kv_heads != 0:
        raise PolicyError(f"model: {shape.heads} heads are no multiple of {shape.kv_heads} KV heads")
    return shape


def _compose(document, names: list[str]) -> list[str]:
    compose = document.get("compose", [])
    if not isinstance(compose, list):
        raise PolicyError("compose: expected a list")
    for name in compose:
        if name not in names:
            raise PolicyError(f"compose names {name!r}, which the document lacks")
    if len(set(compose)) < len(compose):
        raise PolicyError("compose names a section twice")
    return compose


def _choose(names: list[str], compose: list[str], section: str | None) -> list[str]:
    if section is not None:
        if section not in names:
            raise PolicyError(f"there is no section {section!r}; the document has {', '.join(names) or 'none'}")
        return [section]
    if compose:
        return compose
    if not names:
        raise PolicyError("the document holds no policy")
    if len(names) > 1:
        raise PolicyError(f"the document holds {len(names)} policies; pass section=, one of {', '.join(names)}")
    return names


def _part(section: str, given: dict, shape: ModelShape, task: str | None) -> Part:
    name = section
    if section == "baseline":
        name = given.get("name")
        if isinstance(name, str) and name in NOT_RUN:
            raise PolicyError(f"baseline: {name!r} cannot be run by this package: {NOT_RUN[name]}")
        if not isinstance(name, str) or not any(name in names for names in KINDS.values()) or name in SECTIONS:
            raise PolicyError(f"baseline.name: found {name!r}, expected a baseline's name")
    if "settings" not in given:
        raise PolicyError(f"{section}.settings: missing")
    part = Part(name, read_settings(name, given["settings"], f"{section}.settings"))
    result = given.get("result", {})
    if not isinstance(result, dict):
        raise PolicyError(f"{section}.result: expected an object")
    for key in result:
        if key not in RESULTS[section]:
            raise PolicyError(f"{section}.result.{key}: unknown")
    place = f"{section}.result"
    if section in ("simlayerkv", "heads"):
        part.lazy = _lazy(result, shape, place)
        if section == "heads" and part.lazy is None:
            raise PolicyError("heads.result.lazy_heads: missing")
    elif section == "pod":
        part.lowest = _lowest(result, shape, place)
        if part.lowest is None and part["blocks"]:
            raise PolicyError("pod.settings.blocks: blocks in another file are not read; expected result.lowest")
    elif section == "dynamickv":
        part.budgets = _budgets(result, shape, place, task)
    elif section == "headkv":
        part.budgets = _head_budgets(result, shape, place)
    elif section == "precision":
        part.formats = _formats(result, shape, place)
    elif section == "lagkv" and result.get("kept", part["keep"]) != part["keep"]:
        raise PolicyError(
            f"{place}.kept: found {result['kept']!r}, and {part['ratio']} of {part['lag']} tokens are {part['keep']}"
        )
    return part


def _list(value, count: int, of: str, place: str, read) -> list:
    if not isinstance(value, list):
        raise PolicyError(f"{place}: expected a list")
    if len(value) != count:
        raise PolicyError(f"{place} has {len(value)} entries, and the model has {count} {of}")
    return [read(item, f"{place}.{i}") for i, item in enumerate(value)]


def _flag(value, place: str) -> bool:
    if not isinstance(value, bool):
        raise PolicyError(f"{place}: found {value!r}, expected true or false")
    return value


def _count(value, place: str, most: int = 1 << 24) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise PolicyError(f"{place}: found {value!r}, expected 0 to {most}")
    return value


def _lazy(result: dict, shape: ModelShape, place: str):
    if "lazy_layers" in result and "lazy_heads" in result:
        raise PolicyError(f"{place}: found 'lazy_layers' and 'lazy_heads', expected one of them")
    if "lazy_layers" in result:
        lazy = _list(result["lazy_layers"], shape.layers, "layers", f"{place}.lazy_layers", _flag)
        return [[flag] for flag in lazy]
    if "lazy_heads" in result:

        def row(value, at):
            count = 1 if isinstance(value, list) and len(value) == 1 else shape.kv_heads
            return _list(value, count, "KV heads", at, _flag)

        return _list(result["lazy_heads"], shape.layers, "layers", f"{place}.lazy_heads", row)
    return None


def _lowest(result: dict, shape: ModelShape, place: str):
    if "lowest" not in result:
        return None

    def row(value, at):
        layers = _list(value, shape.layers, "layers", at, lambda item, there: _count(item, there, 4095))
        for layer, lowest in enumerate(layers):
            if lowest != layer and (layer == 0 or lowest != layers[layer - 1]):
                raise PolicyError(
                    f"{at}.{layer} is {lowest}, expected the layer itself or the lowest of the layer before"
                )
        return layers

    return _list(result["lowest"], shape.heads, "query heads", f"{place}.lowest", row)


def _formats(result: dict, shape: ModelShape, place: str):
    if not result:
        return None
    of_layers = []
    for side in ("keys", "values"):
        word = SETTINGS["precision"][side]
        of_layers.append(_list(result.get(side), shape.layers, "layers", f"{place}.{side}", word.read))
    return list(zip(*of_layers))


def _head_budgets(result: dict, shape: ModelShape, place: str):
    if "budgets" not in result:
        return None

    def row(value, at):
        return _list(value, shape.kv_heads, "KV heads", at, _count)

    return _list(result["budgets"], shape.layers, "layers", f"{place}.budgets", row)


def _budgets(result: dict, shape: ModelShape, place: str, task: str | None):
    tasks = result.get("tasks", {})
    if not isinstance(tasks, dict):
        raise PolicyError(f"{place}.tasks: expected an object")
    tasks = {
        name: _list(value, shape.layers, "layers", f"{place}.tasks.{name}", _count) for name, value in tasks.items()
    }
    budgets = None
    if "budgets" in result:
        budgets = _list(result["budgets"], shape.layers, "layers", f"{place}.budgets", _count)
    if task is None:
        return budgets
    if task not in tasks:
        raise PolicyError(f"{place}: no budgets for task {task!r}; it has them for {', '.join(tasks) or 'none'}")
    return tasks[task]
