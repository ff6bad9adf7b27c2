# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's log of a model's caches, and of its recurrent states, says the bytes that `kvatlas inspect --as llama.cpp` says."""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import gguf
import llama_cpp
import support

TINY = support.ROOT / "tests/golden/data/tiny2_gguf"
CONTEXT = 20000  # no multiple of the 256 tokens that caches are padded to
SEQUENCES = 64  # enough for the two digits of the log
MIB = 1 << 20
# llama.cpp expects other sizes of these tiny models than their files have, such as heads of hidden size / heads.
NOT_LOADED = (
    "cohere2 dots1 ernie4_5_moe exaone4 gemma3n_text lfm2 nemotron olmo2 olmo3 olmoe phi phimoe qwen2_moe starcoder2"
).split()


def override(entry, key: str, value: int | str) -> None:
    entry.key = key.encode()
    if isinstance(value, str):
        entry.tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_STR
        entry.value.val_str = value.encode()
    else:
        entry.tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT
        entry.value.val_i64 = value


def make_context(file: str, sequences: int) -> None:
    """Loads the model without its vocabulary, which is no whole one in these files, and makes the caches as llama-server does."""
    reader = gguf.GGUFReader(file)
    (embedding,) = (tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    architecture = reader.get_field("general.architecture").contents()
    overrides = (llama_cpp.llama_model_kv_override * 3)()  # the last one has no key: the end
    override(overrides[0], "tokenizer.ggml.model", "no_vocab")
    override(overrides[1], f"{architecture}.vocab_size", int(embedding.shape[1]))
    of_model = llama_cpp.llama_model_default_params()
    of_model.kv_overrides = overrides
    model = llama_cpp.llama_model_load_from_file(file.encode(), of_model)
    if not model:
        sys.exit("not loaded")
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = CONTEXT
    options.n_seq_max = sequences
    options.kv_unified = True
    options.swa_full = False
    options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO
    llama_cpp.llama_init_from_model(model, options)


def log_of_context(file: Path, sequences: int) -> str:
    """What is said meanwhile. In a process of its own, for some tiny models end it later, when graphs are made."""
    words = [sys.executable, __file__, "context", file, str(sequences)]
    quietly = os.environ | {"GGML_NO_BACKTRACE": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=quietly)
    return done.stderr


def caches(said: str) -> dict[int, tuple[int, float]]:
    """By their cells: layers and MiB of the caches that hold any layer."""
    found = re.findall(r"size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers, +\d+/\d+ seqs\)", said)
    return {int(cells): (int(layers), float(size)) for size, cells, layers in found if int(layers) > 0}


def states(said: str) -> float | None:
    """MiB of all recurrent states; none without a line about them."""
    found = re.findall(r"size = +([\d.]+) MiB \( *\d+ cells, +\d+ layers, +\d+ seqs", said)
    return sum(map(float, found)) if found else None


class LlamaCppBytes(unittest.TestCase):
    def check(self, file: Path) -> None:
        card = json.loads(support.run("inspect", file, "--context", CONTEXT, "--as", "llama.cpp", "--json"))
        mine: dict[int, tuple[int, float]] = {}
        for layer in card["memory"]["formats"][0]["layers"]:
            if layer["bytes"] > 0:
                layers, size = mine.get(int(layer["tokens"]), (0, 0.0))
                mine[int(layer["tokens"])] = (layers + 1, size + layer["bytes"] / MIB)
        said = log_of_context(file, 1)
        self.assertNotIn("not loaded", said)
        theirs = caches(said)
        self.assertEqual(theirs.keys(), mine.keys())
        for cells, (layers, size) in theirs.items():
            self.assertEqual(layers, mine[cells][0])
            self.assertAlmostEqual(size, mine[cells][1], delta=0.006)
        numbers = sum(layer.get("state_values", 0) for layer in card["cache_layers"])
        self.assertEqual(states(said) is not None, numbers > 0)
        if numbers > 0:  # llama.cpp keeps them in float32
            of_all = states(log_of_context(file, SEQUENCES))
            self.assertAlmostEqual(of_all, SEQUENCES * numbers * 4 / MIB, delta=0.006)

    def test_every_model(self):
        files = sorted(TINY.glob("*.gguf"))
        self.assertGreater(len(files), 30)
        for file in files:
            with self.subTest(file.stem):
                if file.stem in NOT_LOADED:
                    self.assertIn("check_tensor_dims", log_of_context(file, 1))
                else:
                    self.check(file)


if __name__ == "__main__":
    if sys.argv[1:2] == ["context"]:
        make_context(sys.argv[2], int(sys.argv[3]))
    else:
        unittest.main()
