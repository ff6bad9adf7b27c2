# SPDX-License-Identifier: Apache-2.0
"""OpenVINO GenAI builds its scheduler's configuration from the exported file."""

import json
import unittest

import openvino_genai
import support

LAYERS = 6


def policy(**sections) -> dict:
    model = {"architecture": "llama", "head_dim": 16, "heads": 4, "kv_heads": 2, "layers": LAYERS}
    return {"schema": "kvatlas.policy/1.0", "model": model, "provenance": {"lengths": [2048]}} | sections


def scheduler(fields: dict) -> openvino_genai.SchedulerConfig:
    """As the repository's benchmark reads the file given with --cb_config."""
    config = openvino_genai.SchedulerConfig()
    eviction = dict(fields.pop("cache_eviction_config"))
    eviction["aggregation_mode"] = getattr(openvino_genai.AggregationMode, eviction["aggregation_mode"])
    config.cache_eviction_config = openvino_genai.CacheEvictionConfig(**eviction)
    for name, value in fields.items():
        if not hasattr(config, name):
            raise AssertionError(f"SchedulerConfig has no {name}")
        setattr(config, name, value)
    return config


class OpenVinoTest(unittest.TestCase):
    def check(self, document: dict, file: str, start: int, recent: int, most: int, *options):
        folder = support.export(document, "openvino", *options)
        config = scheduler(json.loads((folder / file).read_text(encoding="utf-8")))
        self.assertTrue(config.use_cache_eviction)
        eviction = config.cache_eviction_config
        self.assertEqual(eviction.get_start_size(), start)
        self.assertEqual(eviction.get_recent_size(), recent)
        self.assertEqual(eviction.get_max_cache_size(), most)
        # What it may take out lies between the first and the recent tokens: at least a block.
        self.assertEqual(eviction.get_evictable_size(), most - start - recent)
        self.assertGreaterEqual(eviction.get_evictable_size(), 32)

    def test_streaming_has_a_spare_block(self):
        settings = {"initial": 4, "recent": 256}
        self.check(policy(baseline={"name": "streaming", "settings": settings}), "cb_config.json", 32, 256, 320)

    def test_lazy_layers_become_their_mean(self):
        lazy = {"settings": {"initial": 4, "recent": 256}, "result": {"lazy_layers": [False, True, True] * 2}}
        # (2 * 1024 + 4 * 260) / 6 = 514, in whole blocks.
        self.check(policy(simlayerkv=lazy), "cb_config_1024.json", 32, 256, 544, "--length", 1024)

    def test_budgets_become_their_mean(self):
        section = {"settings": {"window": 16, "budget": 128}, "result": {"budgets": [240, 100, 80, 60, 140, 52]}}
        self.check(policy(dynamickv=section), "cb_config.json", 32, 64, 128)
        few = {"settings": {"window": 16, "budget": 20}, "result": {"budgets": [4] * LAYERS}}
        self.check(policy(dynamickv=few), "cb_config.json", 32, 32, 96)

    def test_no_spare_block_is_refused_by_the_runtime(self):
        """Why there is one."""
        with self.assertRaises(RuntimeError):
            openvino_genai.CacheEvictionConfig(
                start_size=32, recent_size=256, max_cache_size=288, aggregation_mode=openvino_genai.AggregationMode.SUM
            )


if __name__ == "__main__":
    unittest.main()
