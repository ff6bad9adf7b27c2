# SPDX-License-Identifier: Apache-2.0
"""MInference's own reader of pattern files takes the exported one; its shipped files can be imported.

The package itself cannot be imported without its CUDA extensions, so its reader is taken out of the installed source.
Install: MINFERENCE_SKIP_CUDA_BUILD=TRUE pip install --no-deps --no-build-isolation minference==0.1.6.0
"""
import ast
import importlib.util
import json
import os
import tempfile
import types
import unittest
from collections import Counter
from importlib import import_module
from pathlib import Path

from support import export, kvatlas
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

DOCUMENTS = Path(__file__).resolve().parent.parent / "unit" / "export" / "documents"
PACKAGE = Path(next(iter(importlib.util.find_spec("minference").submodule_search_locations)))


def own_reader():
    """init_minference_parameters of minference/modules/minference_forward.py."""
    source = (PACKAGE / "modules" / "minference_forward.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if getattr(node, "name", "") == "init_minference_parameters"]
    names = {"json": json, "os": os, "import_module": import_module}
    exec(compile(ast.Module(functions, []), "minference_forward.py", "exec"), names)
    return names["init_minference_parameters"]


def read_by_it(path: Path, layer: int) -> dict:
    attention = types.SimpleNamespace(
        config=types.SimpleNamespace(to_dict=lambda: {"config_path": str(path)}),
        layer_idx=layer,
        rotary_emb=LlamaRotaryEmbedding(LlamaConfig(hidden_size=64, num_attention_heads=4)),
    )
    own_reader()(attention)
    return attention.best_pattern


class MinferenceTest(unittest.TestCase):
    def test_lazy_heads(self):
        path = export(DOCUMENTS / "heads.json", "minference") / "kvatlas_best_pattern.json"
        lazy = [[0, 0], [1, 0], [1, 1], [0, 1], [1, 1], [0, 0]]
        full, stream = ("vertical_and_slash", 1000, 6096), ("stream_llm", 4, 60)
        for layer, heads in enumerate(lazy):
            pattern = read_by_it(path, layer)
            for head in range(4):
                # As its forward pass unpacks it.
                kind, vertical, slash, _ = pattern.get(head, ("missing", 0, 0, 1))
                self.assertEqual((kind, vertical, slash), stream if heads[head // 2] else full)
        self.assertEqual(read_by_it(path, 6), {})

    def test_shape_is_that_of_the_shipped_files(self):
        path = export(DOCUMENTS / "lazy_layers.json", "minference") / "kvatlas_best_pattern.json"
        ours = json.loads(path.read_text())
        for shipped in PACKAGE.glob("configs/*best_pattern*.json"):
            for layer in json.loads(shipped.read_text()):
                for key, pattern in layer.items():
                    self.assertEqual([type(part) for part in pattern[:3]], [str, int, int])
                    self.assertTrue(key.isdigit())
        self.assertEqual({len(layer) for layer in ours}, {4})
        self.assertTrue(all(list(map(type, p)) == [str, int, int, int] for layer in ours for p in layer.values()))

    def test_shipped_files_are_imported(self):
        for shipped in sorted(PACKAGE.glob("configs/*best_pattern*.json")):
            layers = json.loads(shipped.read_text())
            heads = max(int(key) for layer in layers for key in layer) + 1
            kinds = Counter(pattern[0] for layer in layers for pattern in layer.values())
            with tempfile.TemporaryDirectory() as folder:
                output = Path(folder) / "policy.json"
                done = kvatlas("import", "minference", shipped, "-o", output, "--heads", heads, "--kv-heads", heads,
                               "--head-dim", 128)
                self.assertEqual(done.returncode, 0, done.stderr)
                section = json.loads(output.read_text())["heads"]
                lazy = sum(sum(row) for row in section["result"]["lazy_heads"])
                self.assertEqual(lazy, kinds["stream_llm"])
                if lazy:
                    self.assertEqual(section["settings"], {"initial": 100, "recent": 800})


if __name__ == "__main__":
    unittest.main()
