# SPDX-License-Identifier: Apache-2.0
"""What the interop tests share: the program, policy documents, models. ./dev interop sets the environment."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KVATLAS = os.environ.get("KVATLAS", str(ROOT / "build/bin/kvatlas"))


def __getattr__(name: str) -> Path:
    """MODEL: the demo model as GGUF; MODEL_DIR: as transformers reads it. Only for those who ask for them."""
    variables = {"MODEL": "KVATLAS_MODEL", "MODEL_DIR": "KVATLAS_MODEL_DIR"}
    if name not in variables:
        raise AttributeError(name)
    return Path(os.environ[variables[name]])


def kvatlas(*words) -> subprocess.CompletedProcess:
    return subprocess.run([KVATLAS, *map(str, words)], capture_output=True, text=True, check=False)


def run(*words) -> str:
    """What the program prints; it must succeed."""
    done = kvatlas(*words)
    if done.returncode != 0:
        raise AssertionError(f"kvatlas {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def written(document: dict) -> Path:
    path = Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / "policy.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def export(document, runtime: str, *options) -> Path:
    """The folder that the policy of a document (or of its file) is exported to, for the runtime."""
    path = written(document) if isinstance(document, dict) else Path(document)
    folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / runtime
    run("export", path, "--to", runtime, "-o", folder, *options)
    return folder


def _document(model, section: str, settings: dict, result: dict | None = None) -> dict:
    """A document for a transformers model."""
    config = model.config
    shape = {
        "architecture": config.model_type,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "layers": config.num_hidden_layers,
    }
    body = {"settings": settings} | ({"result": result} if result is not None else {})
    return {"schema": "kvatlas.policy/1.0", "model": shape, section: body}


def lazy_document(model, lazy_layers, initial: int, recent: int) -> dict:
    """Fixed lazy layers, given by their numbers."""
    lazy = [layer in lazy_layers for layer in range(model.config.num_hidden_layers)]
    return _document(model, "simlayerkv", {"initial": initial, "recent": recent}, {"lazy_layers": lazy})


def threshold_document(model, threshold: float, initial: int, recent: int) -> dict:
    """Lazy layers found for each input."""
    return _document(model, "simlayerkv", {"initial": initial, "recent": recent, "threshold": threshold})


def head_document(model, lazy_heads, initial: int, recent: int) -> dict:
    """Fixed lazy heads: [layer][KV head], true where lazy."""
    return _document(model, "heads", {"initial": initial, "recent": recent}, {"lazy_heads": lazy_heads})


def dynamickv_document(model, budgets, window: int = 16, kernel: int = 7, pooling: str = "avg") -> dict:
    """Fixed budgets of the layers, the window not counted."""
    settings = {
        "budget": round(sum(budgets) / len(budgets)) + window,
        "window": window,
        "kernel": kernel,
        "pooling": pooling,
    }
    return _document(model, "dynamickv", settings, {"budgets": list(budgets)})


def headkv_document(model, budgets, window: int = 16, kernel: int = 7) -> dict:
    """Fixed budgets of the KV heads, [layer][KV head], the window not counted."""
    heads = [budget for layer in budgets for budget in layer]
    settings = {"budget": round(sum(heads) / len(heads)) + window, "window": window, "kernel": kernel}
    return _document(model, "headkv", settings, {"budgets": budgets})


def lagkv_document(model, sink: int, lag: int, ratio: str) -> dict:
    return _document(model, "lagkv", {"sink": sink, "lag": lag, "ratio": ratio})


def selection_document(model, name: str, settings: dict) -> dict:
    """A method that keeps the tokens of the best scores, by its inline name."""
    document = _document(model, "baseline", settings)
    document["baseline"]["name"] = name
    return document


def small_llama(layers: int, heads: int, kv_heads: int, **changes):
    """A random transformers model, always the same."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = {
        "vocab_size": 128,
        "hidden_size": 16 * heads,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 4096,
        "initializer_range": 0.2,
    }
    return LlamaForCausalLM(LlamaConfig(**(config | changes))).eval()
