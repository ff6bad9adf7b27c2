# SPDX-License-Identifier: Apache-2.0
"""The program that lies in this package, and the LibTorch that it runs with: that of this environment's torch."""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import os
import pathlib
import re
import subprocess
from collections.abc import Iterable

from .errors import KvatlasError

PACKAGE = pathlib.Path(__file__).resolve().parent
INSTALLED = PACKAGE / "installed"
PROGRAM = INSTALLED / "bin/kvatlas"
NOT_MET = 4  # the exit status of a verdict that is not "passed"
MODEL_COMMANDS = ("profile", "generate", "evaluate", "check", "calibrate", "reference")  # they alone need torch

Option = str | int | float | bool | os.PathLike | Iterable | None


@functools.cache
def built() -> dict:
    """What the wheel was built with and for (export/python/bundle.py)."""
    try:
        return json.loads((PACKAGE / "built.json").read_text("utf-8"))
    except OSError:
        raise KvatlasError(
            f"{PACKAGE} holds no program: install the wheel that './dev wheel' makes (docs/install.md)"
        ) from None


def torch_libraries() -> pathlib.Path:
    """The folder of LibTorch's libraries. Torch is looked for and not imported, which would take seconds."""
    wanted = built()["torch"]
    need = f"torch>={wanted},<{_next_minor(wanted)}"
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise KvatlasError(f"the program runs on torch {wanted}, which is not installed here: pip install '{need}'")
    folder = pathlib.Path(spec.submodule_search_locations[0])
    try:
        text = (folder / "version.py").read_text("utf-8")
    except OSError:
        text = ""
    said = re.search(r"""^__version__ = ['"]([^'"]+)['"]""", text, re.MULTILINE)
    version = said[1] if said else "of an unknown version"
    if not version.startswith(wanted + "."):
        raise KvatlasError(
            f"the program runs on torch {wanted}, and {folder} is {version}: pip install '{need}', "
            "in an environment of its own if another package needs that one"
        )
    if not (folder / "lib/libtorch_cpu.so").exists():
        raise KvatlasError(f"{folder / 'lib/libtorch_cpu.so'} is missing: install torch {wanted} anew")
    return folder / "lib"


def _next_minor(version: str) -> str:
    major, minor = version.split(".")
    return f"{major}.{int(minor) + 1}"


def environment(command: str = MODEL_COMMANDS[0]) -> dict[str, str]:
    """The variables that a command of the program runs with. Fonts: the viewer's own where the machine has none."""
    out = dict(os.environ)
    out.setdefault("FONTCONFIG_FILE", str(INSTALLED / "fonts/fonts.conf"))
    if command in MODEL_COMMANDS:
        given = [out["LD_LIBRARY_PATH"]] if out.get("LD_LIBRARY_PATH") else []
        out["LD_LIBRARY_PATH"] = ":".join([str(torch_libraries()), *given])
    return out


def as_words(options: dict[str, Option]) -> list[str]:
    """Keyword arguments as the program's options: recent=256 is --recent 256, force=True is --force, and a list is joined
    by commas. None and False are left out."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            if isinstance(value, Iterable) and not isinstance(value, (str, os.PathLike)):
                value = ",".join(map(str, value))
            words += [option, str(value)]
    return words


def run(*words: str | os.PathLike, **options: Option) -> str:
    """Runs a command of the program and returns what it prints: run("inspect", "p.h5"), run("export", "policy.json",
    to="vllm", output="vllm"). What it notes besides goes to the logger "kvatlas". Raises KvatlasError if it fails."""
    return run_for((), *words, **options)[0]


def run_for(accepted: tuple[int, ...], *words: str | os.PathLike, **options: Option) -> tuple[str, int]:
    """The same, with the exit status, which may also be one of `accepted`."""
    command = [str(PROGRAM), *map(str, words), *as_words(options)]
    done = subprocess.run(
        command, env=environment(command[1]), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    notes = done.stderr.strip()
    if done.returncode not in (0, *accepted):
        raise KvatlasError(notes or f"{' '.join(command)} ended with {done.returncode}")
    if notes:
        logging.getLogger("kvatlas").info("%s", notes)
    return done.stdout, done.returncode
