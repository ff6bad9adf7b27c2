# SPDX-License-Identifier: Apache-2.0
"""The exported YAML meets TensorRT-LLM's fields and limits, as tensorrt_llm.schema.json states them."""

import copy
import json
import tempfile
import unittest
from pathlib import Path

import jsonschema
import support
import yaml

LAZY = [False, True, True, False, True, True]
SCHEMA = json.loads((Path(__file__).parent / "tensorrt_llm.schema.json").read_text(encoding="utf-8"))


def policy(architecture: str, **sections) -> dict:
    model = {"architecture": architecture, "head_dim": 16, "heads": 4, "kv_heads": 2, "layers": len(LAZY)}
    return {"schema": "kvatlas.policy/1.0", "model": model, "provenance": {"lengths": [2048]}} | sections


def lazy(lazy_layers: list[bool], initial: int = 4) -> dict:
    return {"settings": {"initial": initial, "recent": 256}, "result": {"lazy_layers": lazy_layers}}


class TensorRtTest(unittest.TestCase):
    def loaded(self, document: dict, *options) -> dict:
        text = (support.export(document, "tensorrt-llm", *options) / "tensorrt_llm.yaml").read_text(encoding="utf-8")
        fields = yaml.safe_load(text)
        jsonschema.Draft7Validator(SCHEMA).validate(fields)
        return fields

    def check_lists(self, types: list[str], windows: list[int], lazy_layers: list[bool]):
        self.assertEqual([word == "sliding_attention" for word in types], lazy_layers)
        self.assertEqual([window == 256 for window in windows], lazy_layers)
        self.assertTrue(all(window in (256, 1 << 24) for window in windows))

    def test_windows(self):
        fields = self.loaded(policy("mistral", simlayerkv=lazy(LAZY)))
        self.assertEqual(fields["model_kwargs"]["sliding_window"], 256)
        windows = fields["kv_cache_config"]["max_attention_window"]
        self.check_lists(fields["model_kwargs"]["layer_types"], windows, LAZY)

    def test_gemma3_beside_a_vision_model(self):
        local = [True] * 5 + [False]
        config = Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / "config.json"
        text = {"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 1024}
        config.write_text(json.dumps({"model_type": "gemma3", "text_config": text}), encoding="utf-8")
        fields = self.loaded(policy("gemma3", simlayerkv=lazy(local, 0)), "--config", config)
        windows = fields["kv_cache_config"]["max_attention_window"]
        self.check_lists(fields["model_kwargs"]["text_config"]["layer_types"], windows, local)

    def test_mean_budget(self):
        section = {"settings": {"window": 16, "budget": 128}, "result": {"budgets": [240, 100, 80, 60, 140, 52]}}
        fields = self.loaded(policy("llama", dynamickv=section))
        self.assertEqual(fields["sparse_attention_config"]["prompt_budget"], 112 + 16)

    def test_triattention(self):
        settings = {"by": "triattention", "budget": 2048, "every": 128}
        fields = self.loaded(policy("llama", baseline={"name": "decoding", "settings": settings}))
        compression = fields["kv_cache_compression_config"]
        self.assertEqual((compression["budget"], compression["beta"]), (2048, 128))
        self.assertEqual(compression["eviction_mode"], "per_layer_perhead")

    def test_the_schema_can_fail(self):
        right = self.loaded(policy("mistral", simlayerkv=lazy(LAZY)))
        for change in (
            lambda fields: fields["kv_cache_config"].update(sink_token_length=4),
            lambda fields: fields["kv_cache_config"].update(max_attention_window=[]),
            lambda fields: fields["kv_cache_config"]["max_attention_window"].append(0),
            lambda fields: fields["model_kwargs"]["layer_types"].append("sliding"),
            lambda fields: fields["model_kwargs"].pop("sliding_window"),
            lambda fields: fields.pop("kv_cache_config"),
            lambda fields: fields.update(max_window=3),
        ):
            wrong = copy.deepcopy(right)
            change(wrong)
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.Draft7Validator(SCHEMA).validate(wrong)

    def test_llama_is_refused(self):
        path = support.written(policy("llama", simlayerkv=lazy(LAZY)))
        done = support.kvatlas("export", path, "--to", "tensorrt-llm", "-o", path.parent / "no")
        self.assertIn("passes no window", done.stderr)


if __name__ == "__main__":
    unittest.main()
