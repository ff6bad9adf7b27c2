# SPDX-License-Identifier: Apache-2.0
"""vLLM reads the exported file with its own parser, and lays it over a checkpoint's config.json."""

import json
import tempfile
import unittest
from pathlib import Path

import support
from vllm.transformers_utils.config import get_config
from vllm.utils.argparse_utils import FlexibleArgumentParser

LAZY = [False, True, True, False, True, True]


def checkpoint(model_type: str, **changes) -> Path:
    """A folder that holds a config.json alone."""
    folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
    fields = {
        "model_type": model_type,
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": len(LAZY),
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    (folder / "config.json").write_text(json.dumps(fields | changes), encoding="utf-8")
    return folder


def policy(architecture: str, lazy: list[bool], initial: int = 4) -> dict:
    return {
        "schema": "kvatlas.policy/1.0",
        "model": {"architecture": architecture, "head_dim": 16, "heads": 4, "kv_heads": 2, "layers": len(LAZY)},
        "provenance": {"lengths": [2048]},
        "simlayerkv": {"settings": {"initial": initial, "recent": 256}, "result": {"lazy_layers": lazy}},
    }


def arguments(folder: Path) -> dict[str, str]:
    """The command line that --config makes of the file."""
    words = FlexibleArgumentParser().load_config_file(str(folder / "vllm.yaml"))
    return dict(zip(words[::2], words[1::2]))


class VllmTest(unittest.TestCase):
    def check(self, model_type: str, lazy: list[bool], implementation: str | None = None, **changes):
        model = checkpoint(model_type, **changes)
        document = policy(model_type.removesuffix("_text"), lazy, 0)
        given = arguments(support.export(document, "vllm", "--config", model / "config.json"))
        self.assertEqual(given.pop("--model-impl", None), implementation)
        overrides = json.loads(given.pop("--hf-overrides"))
        self.assertEqual(given, {})
        config = get_config(model, trust_remote_code=False, hf_overrides_kw=overrides)
        self.assertEqual([word == "sliding_attention" for word in config.layer_types], lazy)
        # A misspelt word would pass, and make a full layer.
        self.assertLessEqual(set(config.layer_types), {"full_attention", "sliding_attention"})
        self.assertEqual(config.sliding_window, 256)

    def test_llama(self):
        self.check("llama", LAZY)

    def test_mistral(self):
        self.check("mistral", LAZY, sliding_window=None)

    def test_qwen_runs_in_transformers_code(self):
        self.check("qwen2", LAZY, "transformers", use_sliding_window=False)
        self.check("qwen3", LAZY, "transformers", use_sliding_window=False)

    def test_gemma3(self):
        self.check("gemma3_text", [True] * 5 + [False], sliding_window=1024)


if __name__ == "__main__":
    unittest.main()
