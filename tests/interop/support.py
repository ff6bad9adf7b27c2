# SPDX-License-Identifier: Apache-2.0
"""What the interop tests share: the program, and small models."""
import json
import os
import subprocess
import tempfile
from pathlib import Path

KVATLAS = os.environ.get("KVATLAS", "build/bin/kvatlas")


def kvatlas(*words) -> subprocess.CompletedProcess:
    return subprocess.run([KVATLAS, *map(str, words)], capture_output=True, text=True, check=False)


def export(document, runtime: str, *options) -> Path:
    """The folder that the document's policy is exported to, for the runtime."""
    folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
    path = document
    if isinstance(document, dict):
        path = folder / "document.json"
        path.write_text(json.dumps(document), encoding="utf-8")
    done = kvatlas("export", path, "--to", runtime, "-o", folder / "out", *options)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return folder / "out"


def small_llama(layers: int, heads: int, kv_heads: int):
    """A random model, always the same."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=16 * heads,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=4096,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()
