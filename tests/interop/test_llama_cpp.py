# SPDX-License-Identifier: Apache-2.0
"""The exported script writes the window into a GGUF file, as the package gguf reads it, and changes nothing else."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import gguf
import numpy as np
import support

LAYERS = 6
CONFIG = '{"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 1024}'


def policy(architecture: str, lazy: list[int]) -> dict:
    return {
        "schema": "kvatlas.policy/1.0",
        "model": {"architecture": architecture, "head_dim": 16, "heads": 4, "kv_heads": 2, "layers": LAYERS},
        "provenance": {"lengths": [2048]},
        "simlayerkv": {
            "settings": {"initial": 0, "recent": 256},
            "result": {"lazy_layers": [layer in lazy for layer in range(LAYERS)]},
        },
    }


def written_model(folder: Path, architecture: str = "gemma3", layers: int = LAYERS) -> Path:
    """A small file with a value of each kind that a model has."""
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_custom_alignment(64)
    writer.add_name("tiny ✓")
    writer.add_block_count(layers)
    writer.add_sliding_window(1024)
    writer.add_float32(f"{architecture}.rope.freq_base", 1e6)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_array("tokenizer.ggml.tokens", ["<pad>", "ä", "b"])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0, 0.0])
    random = np.random.default_rng(0)
    writer.add_tensor("token_embd.weight", random.standard_normal((3, 64)).astype(np.float32))
    writer.add_tensor("output_norm.weight", random.standard_normal(63).astype(np.float16))
    quantized = gguf.quants.quantize(random.standard_normal((4, 64)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.attn_q.weight", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class LlamaCppTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        config = self.folder / "config.json"
        config.write_text(CONFIG, encoding="utf-8")
        self.exported = support.export(policy("gemma3", [0, 1, 2, 3, 4]), "llama.cpp", "--config", config)
        self.target = self.folder / "windows.gguf"

    def run_script(self, source: Path) -> subprocess.CompletedProcess:
        words = [self.exported / "set_gguf_metadata.py", self.exported / "gguf_metadata.json", source, self.target]
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)

    def test_metadata_is_set_and_the_rest_is_equal(self):
        source = written_model(self.folder)
        before = source.read_bytes()
        done = self.run_script(source)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(source.read_bytes(), before)
        old, new = gguf.GGUFReader(source), gguf.GGUFReader(self.target)
        expected = {"gemma3.attention.sliding_window": 256, "gemma3.attention.sliding_window_pattern": LAYERS}
        for key, value in expected.items():
            self.assertEqual(new.get_field(key).types, [gguf.GGUFValueType.UINT32])
            self.assertEqual(new.get_field(key).contents(), value)
        names = {name for name in old.fields if not name.startswith("GGUF.")}
        self.assertEqual({name for name in new.fields if not name.startswith("GGUF.")}, names | set(expected))
        for name in names - set(expected):
            self.assertEqual(new.get_field(name).types, old.get_field(name).types, name)
            self.assertEqual(new.get_field(name).contents(), old.get_field(name).contents(), name)
        self.assertEqual([tensor.name for tensor in new.tensors], [tensor.name for tensor in old.tensors])
        for was, now in zip(old.tensors, new.tensors):
            self.assertEqual(now.tensor_type, was.tensor_type)
            self.assertEqual(list(now.shape), list(was.shape))
            self.assertEqual(now.data.tobytes(), was.data.tobytes())
            self.assertEqual(now.data_offset % 64, 0)

    def test_another_model_is_refused(self):
        for changes, reason in (({"architecture": "llama"}, "architecture llama"), ({"layers": 7}, "7 layers")):
            done = self.run_script(written_model(self.folder, **changes))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(reason, done.stderr)
            self.assertFalse(self.target.exists())

    def test_nothing_is_written_over(self):
        self.target.write_text("mine", encoding="utf-8")
        done = self.run_script(written_model(self.folder))
        self.assertIn("exists", done.stderr)
        self.assertEqual(self.target.read_text(encoding="utf-8"), "mine")

    def test_llama_is_refused(self):
        done = support.kvatlas(
            "export", support.written(policy("llama", [1])), "--to", "llama.cpp", "-o", self.folder / "no"
        )
        self.assertIn("reads no window", done.stderr)


if __name__ == "__main__":
    unittest.main()
