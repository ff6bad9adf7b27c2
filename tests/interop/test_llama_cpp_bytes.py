# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's log of a model's caches, and of its recurrent states, says the bytes that `kvatlas inspect --as llama.cpp` says."""

import ctypes
import json
import re
import unittest
from contextlib import contextmanager
from pathlib import Path

import llama_cpp
import support

TINY = support.ROOT / "tests/golden/data/tiny2_gguf"
CONTEXT = 20000  # no multiple of the 256 tokens that caches are padded to
SEQUENCES = 64  # enough for the two digits of the log
MIB = 1 << 20

log: list[str] = []


@llama_cpp.llama_log_callback
def keep_log(_level, text, _data):
    log.append(text.decode("utf-8", "replace"))


llama_cpp.llama_log_set(keep_log, ctypes.c_void_p(0))


@contextmanager
def loaded(file: Path):
    model = llama_cpp.llama_model_load_from_file(str(file).encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise AssertionError("".join(log[-20:]))
    yield model
    llama_cpp.llama_model_free(model)


def log_of_context(model, sequences: int) -> str:
    """What is said while the caches are made, with what llama-server sets: small caches of windows, and flash attention."""
    log.clear()
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = CONTEXT
    options.n_seq_max = sequences
    options.kv_unified = True
    options.swa_full = False
    options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO
    context = llama_cpp.llama_init_from_model(model, options)
    if not context:
        raise AssertionError("".join(log[-20:]))
    llama_cpp.llama_free(context)
    return "".join(log)


def caches(said: str) -> dict[int, tuple[int, float]]:
    """By their cells: layers and MiB of the caches that hold any layer."""
    found = re.findall(r"size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers, +\d+/\d+ seqs\)", said)
    return {int(cells): (int(layers), float(size)) for size, cells, layers in found if int(layers) > 0}


def states(said: str) -> float:
    """MiB of all recurrent states; 0 if there are none."""
    found = re.findall(r"size = +([\d.]+) MiB \( *\d+ cells, +\d+ layers, +\d+ seqs", said)
    return sum(map(float, found))


class LlamaCppBytes(unittest.TestCase):
    def check(self, file: Path) -> None:
        card = json.loads(support.run("inspect", file, "--context", CONTEXT, "--as", "llama.cpp", "--json"))
        mine: dict[int, tuple[int, float]] = {}
        for layer in card["memory"]["formats"][0]["layers"]:
            if layer["bytes"] > 0:
                layers, size = mine.get(int(layer["tokens"]), (0, 0.0))
                mine[int(layer["tokens"])] = (layers + 1, size + layer["bytes"] / MIB)
        numbers = sum(layer.get("state_values", 0) for layer in card["cache_layers"])
        with loaded(file) as model:
            said = log_of_context(model, 1)
            theirs = caches(said)
            self.assertEqual(theirs.keys(), mine.keys())
            for cells, (layers, size) in theirs.items():
                self.assertEqual(layers, mine[cells][0])
                self.assertAlmostEqual(size, mine[cells][1], delta=0.006)
            has_states = any(layer["kind"] == "state" for layer in card["cache_layers"])
            self.assertEqual(states(said) > 0, has_states)
            if has_states:  # llama.cpp keeps them in float32
                theirs = states(log_of_context(model, SEQUENCES))
                self.assertAlmostEqual(theirs, SEQUENCES * numbers * 4 / MIB, delta=0.006)

    def test_every_model(self):
        files = sorted(TINY.glob("*.gguf"))
        self.assertGreater(len(files), 30)
        for file in files:
            with self.subTest(file.stem):
                self.check(file)


if __name__ == "__main__":
    unittest.main()
