# SPDX-License-Identifier: Apache-2.0
"""MInference's own reader of pattern files takes the exported one; its shipped files can be imported; and its choice of
columns and diagonals is that of `vertical-slash`.

The package itself cannot be imported without its CUDA extensions, so functions are taken out of the installed source.
Install: MINFERENCE_SKIP_CUDA_BUILD=TRUE pip install --no-deps --no-build-isolation minference==0.1.6.0
"""
import ast
import importlib.util
import json
import math
import os
import tempfile
import types
import unittest
from collections import Counter
from importlib import import_module
from pathlib import Path

import torch
from support import MODEL, MODEL_DIR, ROOT, export, kvatlas, run
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

DOCUMENTS = Path(__file__).resolve().parent.parent / "unit" / "export" / "documents"
PACKAGE = Path(next(iter(importlib.util.find_spec("minference").submodule_search_locations)))


def own_function(name: str):
    """A function of minference/modules/minference_forward.py."""
    source = (PACKAGE / "modules" / "minference_forward.py").read_text(encoding="utf-8")
    functions = [node for node in ast.walk(ast.parse(source)) if getattr(node, "name", "") == name]
    names = {"json": json, "os": os, "import_module": import_module, "torch": torch, "math": math}
    exec(compile(ast.Module(functions[-1:], []), "minference_forward.py", "exec"), names)
    return names[name]


def read_by_it(path: Path, layer: int) -> dict:
    attention = types.SimpleNamespace(
        config=types.SimpleNamespace(to_dict=lambda: {"config_path": str(path)}),
        layer_idx=layer,
        rotary_emb=LlamaRotaryEmbedding(LlamaConfig(hidden_size=64, num_attention_heads=4)),
    )
    own_function("init_minference_parameters")(attention)
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


class SparseReading:
    """Attention as transformers calls it. A prompt's tokens see the columns and diagonals that MInference's kernel
    would be given, as single keys; the kernel itself needs a GPU."""

    def __init__(self, vertical: int, slash: int):
        self.vertical, self.slash = vertical, slash
        self.seen = self.all = 0
        self.choose = own_function("vertical_and_slash_kernel")
        self.choose.__globals__.update(
            self=types.SimpleNamespace(head_dim=64),
            LAST_Q_MASK=torch.ones(64, 64, dtype=torch.bool).tril()[None, None],
            sum_all_diagonal_matrix=own_function("sum_all_diagonal_matrix"),
            vertical_slash_sparse_attention=lambda q, k, v, *chosen: chosen,
        )

    def mask(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """[1, 1, token, key] of one head."""
        n = q.shape[2]
        self.choose.__globals__["q_len"] = n
        columns, diagonals = self.choose(q, k, None, self.vertical, self.slash)
        distance = torch.arange(n)[:, None] - torch.arange(n)[None]
        seen = torch.isin(torch.arange(n), columns)[None] | torch.isin(distance, diagonals)
        self.seen += int((seen & (distance >= 0)).sum())
        self.all += n * (n + 1) // 2
        return (seen & (distance >= 0))[None, None]

    def __call__(self, module, query, key, value, attention_mask, scaling, **kwargs):
        group = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        mask = None
        if query.shape[2] > 1:
            heads = range(query.shape[1])
            mask = torch.cat([self.mask(query[:, h : h + 1], key[:, h : h + 1]) for h in heads], 1)
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
        return out.transpose(1, 2), None


class VerticalSlashTest(unittest.TestCase):
    def test_the_same_columns_and_diagonals(self):
        ids = AutoTokenizer.from_pretrained(MODEL_DIR)((ROOT / "LICENSE").read_text(encoding="utf-8")).input_ids[:600]
        with tempfile.TemporaryDirectory() as folder:
            prompts = Path(folder) / "prompts.jsonl"
            prompts.write_text(json.dumps({"id": "a", "tokens": ids}), encoding="utf-8")
            for vertical, slash in ((60, 120), (200, 100)):
                with self.subTest(vertical=vertical, slash=slash):
                    theirs = SparseReading(vertical, slash)
                    AttentionInterface.register("sparse_reading", theirs)
                    model = AutoModelForCausalLM.from_pretrained(MODEL_DIR, attn_implementation="sparse_reading").eval()
                    with torch.no_grad():
                        made = model.generate(torch.tensor([ids]), max_new_tokens=12, min_new_tokens=12, do_sample=False)
                    words = ("evaluate", "--model", MODEL, "--prompts", prompts, "--new", 12, "--ignore-eos", "--time-steps", 0)
                    policy = f"vertical-slash:vertical={vertical},slash={slash}"
                    lines = run(*words, "--policy", policy, "--json", "--generations").splitlines()
                    (ours,) = [line for line in map(json.loads, lines) if line["policy"] == policy]
                    self.assertEqual(ours["tokens"], made[0, len(ids) :].tolist())
                    _, told = json.loads(run(*words, "--policy", policy, "--json"))["policies"]
                    self.assertAlmostEqual(told["prompt_read_share"], theirs.seen / theirs.all, delta=1e-4)


if __name__ == "__main__":
    unittest.main()
