# SPDX-License-Identifier: Apache-2.0
"""The newest vLLM, without its kernels: its own parser reads the exported file, and what the plugin builds on is there."""

import inspect
import unittest

import vllm_support
from test_vllm import SMALL, lazy_document


def setUpModule():
    vllm_support.install_plugin()


class NewestVllm(unittest.TestCase):
    def test_reads_the_file(self):
        given = vllm_support.arguments(vllm_support.exported(lazy_document([True, False] * 3, 4, 60, **SMALL)))
        self.assertEqual(given["worker_extension_cls"], "kvatlas_vllm.worker.KvatlasPolicy")
        from kvatlas_vllm.cuts import Streaming
        from kvatlas_vllm.settings import read

        lazy = Streaming(initial=4, recent=60, rolling=False)
        self.assertEqual(read(given["additional_config"]).cuts, (lazy, None) * 3)

    def test_registers(self):
        import torch
        from kvatlas_vllm.blocks import CutManager, CutSpec
        from kvatlas_vllm.cuts import Tova
        from kvatlas_vllm.plugin import register
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.layers.attention import Attention
        from vllm.v1.attention.backends.registry import AttentionBackendEnum
        from vllm.v1.kv_cache_interface import FullAttentionSpec
        from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

        register()
        self.assertTrue(Attention.get_kv_cache_spec.__wrapped__ and EngineArgs.create_engine_config.__wrapped__)
        self.assertTrue(AttentionBackendEnum.CPU_ATTN.get_class().serves_cuts)
        full = FullAttentionSpec(block_size=32, num_kv_heads=2, head_size=32, dtype=torch.float32)
        cut = CutSpec.of(full, Tova(budget=50))
        self.assertIs(KVCacheSpecRegistry.get_manager_class(cut), CutManager)
        self.assertEqual(cut.as_full(), full)
        self.assertFalse(cut.is_uniform_with_collection({"a": cut, "b": CutSpec.of(full, Tova(budget=51))}))

    def test_calls_what_the_plugin_overrides(self):
        from vllm.v1.attention.backend import AttentionMetadataBuilder, CommonAttentionMetadata
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager

        self.assertTrue(KVCacheManager.get_computed_blocks)
        named = inspect.signature(SingleTypeKVCacheManager.remove_skipped_blocks).parameters
        self.assertEqual(list(named)[1:], ["request_id", "processed_computed_tokens", "num_prompt_tokens"])
        self.assertEqual(list(inspect.signature(SingleTypeKVCacheManager.cache_blocks).parameters)[1:3], ["request", "num_tokens"])
        self.assertIn("kv_cache_spec", inspect.signature(SingleTypeKVCacheManager.find_longest_cache_hit).parameters)
        self.assertIn("rswa_prefix_lens", CommonAttentionMetadata.__dataclass_fields__)
        self.assertEqual(
            list(inspect.signature(AttentionMetadataBuilder.build).parameters)[1:3], ["common_prefix_len", "common_attn_metadata"]
        )


if __name__ == "__main__":
    unittest.main()
