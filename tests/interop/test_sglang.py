# SPDX-License-Identifier: Apache-2.0
"""SGLang reads the exported file with its own parser."""

import argparse
import json
import unittest

import support
from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

LAZY = [True, False, True, True, False, True]


class SglangTest(unittest.TestCase):
    def test_file(self):
        document = {
            "schema": "kvatlas.policy/1.0",
            "model": {"architecture": "qwen2", "head_dim": 16, "heads": 4, "kv_heads": 2, "layers": len(LAZY)},
            "provenance": {"lengths": [1024]},
            "simlayerkv": {"settings": {"initial": 4, "recent": 256}, "result": {"lazy_layers": LAZY}},
        }
        path = support.export(document, "sglang") / "sglang.yaml"
        parser = argparse.ArgumentParser()
        for name in ("--model-impl", "--json-model-override-args", "--swa-full-tokens-ratio", "--model-path"):
            parser.add_argument(name)
        words = ConfigArgumentMerger(parser).merge_config_with_args(["--model-path", "m", "--config", str(path)])
        given = parser.parse_args(words)
        self.assertEqual(given.model_path, "m")
        self.assertEqual(given.model_impl, "transformers")
        self.assertEqual(float(given.swa_full_tokens_ratio), 0.25)
        overrides = json.loads(given.json_model_override_args)
        self.assertEqual([word == "sliding_attention" for word in overrides["layer_types"]], LAZY)
        self.assertEqual(overrides["hybrid_layer_pattern"], [int(lazy) for lazy in LAZY])
        self.assertIs(overrides["is_hybrid_swa"], True)
        self.assertEqual(overrides["sliding_window"], 255)  # and the query's own position


if __name__ == "__main__":
    unittest.main()
