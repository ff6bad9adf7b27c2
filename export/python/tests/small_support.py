# SPDX-License-Identifier: Apache-2.0
"""What the tests share: the demo model, and a prefill that is run once for many policies."""

from __future__ import annotations

import functools
import os
import pathlib
import sys
import unittest.mock
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer  # noqa: E402

import kvatlas_transformers  # noqa: E402
from kvatlas_transformers import attention  # noqa: E402

torch.set_num_threads(1)  # steps of small models gain nothing from more
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
warnings.filterwarnings("ignore", module="transformers")

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHAPE = {"layers": 30, "heads": 9, "kv_heads": 3, "head_dim": 64}


def golden(name: str) -> pathlib.Path:
    """A file of the project's reference data."""
    return pathlib.Path(__file__).resolve().parents[3] / "tests/golden/data" / name


def demo_files() -> tuple[str | pathlib.Path, dict]:
    """KVATLAS_MODEL_DIR, as ./dev interop converts it, or else the GGUF that ./dev setup leaves."""
    if "KVATLAS_MODEL_DIR" in os.environ:
        return os.environ["KVATLAS_MODEL_DIR"], {}
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "kvatlas", {"gguf_file": MODEL}


@functools.cache
def demo_model():
    folder, how = demo_files()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **how).eval()


@functools.cache
def demo_tokenizer():
    folder, how = demo_files()
    return AutoTokenizer.from_pretrained(folder, **how)


def document(shape: dict, sections: dict) -> dict:
    return {"schema": "kvatlas.policy/1.0", "model": shape, **sections}


class Prefill:
    """What a prompt's forward pass hands to attention in every layer, so that other caches see the same prompt
    without the model being run on it again. What a cache does with it is what it does in `generate`."""

    def __init__(self, model, tokens: list[int]):
        self.model, self.tokens, self.calls = model, tokens, []

        def record(module, query, key, value, mask, **kwargs):
            self.calls.append((module, query, key, value, mask, kwargs))
            return attention.attention(module, query, key, value, mask, **kwargs)

        AttentionInterface.register("kvatlas-record", record)
        model.set_attn_implementation("kvatlas-record")
        with torch.no_grad():
            self.logits = model(torch.tensor([tokens]), use_cache=False, logits_to_keep=1).logits[0, -1]

    def cache(self, sections: dict):
        return load(sections).cache(self.model, demo_tokenizer(), self.tokens)

    def into(self, cache) -> None:
        """What attention gives is known already, so it is not computed again."""
        usual = attention.usual_attention

        def known(module, query, *given, **how):
            return (None, None) if any(query is call[1] for call in self.calls) else usual(module, query, *given, **how)

        with torch.no_grad(), unittest.mock.patch.object(attention, "usual_attention", known):
            for layer, (module, query, key, value, mask, kwargs) in enumerate(self.calls):
                key, value = cache.update(key.clone(), value, layer)
                attention.attention(module, query, key, value, mask, **kwargs)

    def decode(self, cache, count: int) -> list[int]:
        """`count` tokens, greedily, of which the last is not run."""
        self.into(cache)
        logits, out = self.logits, []
        with torch.no_grad():
            while True:
                out.append(int(logits.argmax()))
                if len(out) == count:
                    return out
                logits = self.model(torch.tensor([[out[-1]]]), past_key_values=cache).logits[0, -1]


def load(sections: dict, shape: dict = SHAPE) -> kvatlas_transformers.Policy:
    return kvatlas_transformers.load(document(shape, sections))
