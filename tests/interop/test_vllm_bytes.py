# SPDX-License-Identifier: Apache-2.0
"""vLLM gives each layer's cache the bytes a token that `kvatlas inspect` says from config.json, and its log as many tokens."""

import json
import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import support
import vllm_support

SIZES = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_hidden_layers": 4,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 1024,
    "torch_dtype": "bfloat16",
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
WINDOWS = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"] * 2}
CASES = {
    "LlamaForCausalLM": {"model_type": "llama"},
    "MistralForCausalLM": {"model_type": "mistral", "sliding_window": None},
    "Qwen2ForCausalLM": {"model_type": "qwen2", "num_key_value_heads": 1},
    "Qwen3ForCausalLM": {"model_type": "qwen3", "head_dim": 64},
    "Gemma2ForCausalLM": {"model_type": "gemma2", **WINDOWS, "query_pre_attn_scalar": 32, "hidden_activation": "gelu_pytorch_tanh"},
    "Gemma3ForCausalLM": {"model_type": "gemma3_text", **WINDOWS, "query_pre_attn_scalar": 32, "hidden_activation": "gelu_pytorch_tanh"},
    "MixtralForCausalLM": {"model_type": "mixtral", **EXPERTS},
    "OlmoeForCausalLM": {"model_type": "olmoe", **EXPERTS, "num_key_value_heads": 4},
    "Qwen3MoeForCausalLM": {"model_type": "qwen3_moe", **EXPERTS, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "Phi3ForCausalLM": {"model_type": "phi3", "num_key_value_heads": 4},
    "GraniteForCausalLM": {"model_type": "granite"},
    "Olmo2ForCausalLM": {"model_type": "olmo2"},
    "Cohere2ForCausalLM": {"model_type": "cohere2", **WINDOWS},
}
# vLLM has Cohere 2 see one token beyond its window; transformers, which kvatlas follows, does not.
ONE_MORE = {"Cohere2ForCausalLM": 1}


def specs(llm) -> list:
    """What vLLM keeps of each layer, in their order."""
    config = vllm_support.blocks(llm).kv_cache_config
    found = {}
    for group in config.kv_cache_groups:
        each = getattr(group.kv_cache_spec, "kv_cache_specs", None)
        for name in group.layer_names:
            found[int(re.search(r"layers\.(\d+)\.", name)[1])] = each[name] if each else group.kv_cache_spec
    return [found[layer] for layer in sorted(found)]


class VllmBytes(unittest.TestCase):
    def check(self, name: str, config: dict) -> None:
        folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        (folder / "config.json").write_text(json.dumps(SIZES | config | {"architectures": [name]}), encoding="utf-8")
        card = json.loads(support.run("inspect", folder / "config.json", "--json"))
        options = {"load_format": "dummy", "skip_tokenizer_init": True, "dtype": "bfloat16", "max_model_len": 1024, "block_size": 32}
        with mock.patch("vllm.v1.core.kv_cache_utils.logger") as logger, vllm_support.engine(folder, **options) as llm:
            theirs = specs(llm)
            blocks = vllm_support.blocks(llm).kv_cache_config.num_blocks
        lines = [call.args[0] % call.args[1:] for call in logger.info_once.call_args_list]
        layers = card["cache_layers"]
        self.assertEqual(len(theirs), len(layers))
        for spec, layer in zip(theirs, layers, strict=True):
            self.assertEqual(spec.page_size_bytes / spec.block_size, layer["kv_heads"] * (layer["key_dim"] + layer["value_dim"]) * 2)
            window = layer["tokens"] + ONE_MORE.get(name, 0) if layer["kind"] == "window" else None
            self.assertEqual(getattr(spec, "sliding_window", None), window)
        self.assertEqual(sum(spec.page_size_bytes / spec.block_size for spec in theirs), card["kv_cache_bytes_per_token"])
        (tokens,) = re.findall(r"KV cache size: ([\d,]+) tokens", "\n".join(lines))
        if all(layer["kind"] == "full" for layer in layers):
            room = int(tokens.replace(",", ""))
            self.assertEqual(room, blocks * 32)
            # All but a part of a block of the GiB that vLLM was given.
            self.assertLess((1 << 30) - room * card["kv_cache_bytes_per_token"], 32 * card["kv_cache_bytes_per_token"])

    def test_bytes(self):
        for name, config in CASES.items():
            with self.subTest(name):
                self.check(name, config)


if __name__ == "__main__":
    unittest.main()
