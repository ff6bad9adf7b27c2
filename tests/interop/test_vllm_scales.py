# SPDX-License-Identifier: Apache-2.0
"""vLLM loads the scales that 'kvatlas export' lays over a checkpoint, each layer its own, and stores numbers by them."""

import contextlib
import json
import random
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import support
import torch
import vllm_support
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 4, 4, 2, 32
SPARED = 2  # a layer that stays at 16 bits
FLAGS = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
STORES_FP8 = bool({"avx512f", "amx_tile"} & FLAGS)  # vLLM's kernels for CPUs know FP8 there alone


def toward_zero(numbers: torch.Tensor) -> torch.Tensor:
    """The codes of E4M3 as vLLM makes them on CPUs: what does not fit is cut off."""
    table = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    sizes = torch.searchsorted(table, numbers.abs().clamp(max=448), right=True) - 1
    return (sizes + 128 * numbers.signbit()).to(torch.uint8)


class Scales(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        model = support.small_llama(LAYERS, HEADS, KV_HEADS, hidden_size=HEADS * HEAD_DIM, head_dim=HEAD_DIM)
        with torch.no_grad():
            for number, layer in enumerate(model.model.layers):  # scales far from 1 that differ by layer
                layer.self_attn.k_proj.weight *= 4.0 ** (number + 1)
                layer.self_attn.v_proj.weight *= 0.05 * (number + 1)
        model.save_pretrained(cls.folder / "M")
        draw = random.Random(3)
        cls.prompts = [[draw.randrange(128) for _ in range(count)] for count in (100, 60)]
        prompts = cls.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"tokens": ids}) + "\n" for ids in cls.prompts), encoding="utf-8")
        ranges = cls.folder / "ranges.h5"
        support.run("profile", "--model", cls.folder / "M", "--prompts", prompts, "--capture", "ranges", "-o", ranges)
        formats = ["16" if layer == SPARED else "fp8" for layer in range(LAYERS)]
        document = {
            "schema": "kvatlas.policy/1.0",
            "model": {"architecture": "llama", "layers": LAYERS, "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM},
            "provenance": {"lengths": [100]},
            "precision": {"settings": {"prefill": "rounded"}, "result": {"keys": formats, "values": formats}},
        }
        cls.out = support.export(document, "vllm", "--ranges", ranges, "--checkpoint", cls.folder / "M")
        cls.scales = load_file(cls.out / "model/kv_scales.safetensors")

    def scale(self, layer: int, side: str) -> float:
        return self.scales[f"model.layers.{layer}.self_attn.{side}_scale"].item()

    def test_they_are_the_largest_magnitudes(self):
        model = AutoModelForCausalLM.from_pretrained(self.folder / "M", dtype=torch.float32).eval()
        with torch.no_grad():
            caches = [model(torch.tensor([ids])).past_key_values for ids in self.prompts]
        for layer in range(LAYERS):
            for side, of in (("k", "keys"), ("v", "values")):
                largest = max(getattr(cache.layers[layer], of).abs().max().item() for cache in caches)
                self.assertAlmostEqual(self.scale(layer, side) * 448 / largest, 1, places=4)

    def test_transformers_takes_the_folder(self):
        for folder in (self.folder / "M", self.out / "model"):
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            self.assertEqual("quantization_config" in config, folder != self.folder / "M")
        self.assertTrue((self.out / "model/model.safetensors").is_symlink())

    def test_each_layer_loads_and_uses_its_own(self):
        from vllm import _custom_ops as ops

        used, stored, whole = [], {}, ops.cpu_attn_reshape_and_cache

        def record(key, value, key_cache, value_cache, slots, *words, **more):
            used.append((more["kv_cache_dtype"], more["k_scale"], more["v_scale"], key.clone(), value.clone()))
            if STORES_FP8:
                whole(key, value, key_cache, value_cache, slots, *words, **more)

        options = {"skip_tokenizer_init": True, "enable_prefix_caching": False}
        with contextlib.ExitStack() as patches:
            patches.enter_context(mock.patch.object(ops, "cpu_attn_reshape_and_cache", record))
            if not STORES_FP8:  # all but the two kernels runs
                patches.enter_context(mock.patch.object(torch.cpu, "_is_avx512_supported", lambda: True))
                patches.enter_context(
                    mock.patch.object(ops, "cpu_attention_with_kv_cache", lambda **given: given["output"].zero_())
                )
            with vllm_support.engine(self.out / "model", **vllm_support.arguments(self.out / "vllm.yaml"), **options) as llm:
                core = llm.llm_engine
                layers = core.model_executor.driver_worker.worker.model_runner.compilation_config.static_forward_context
                attention = [layers[f"model.layers.{layer}.self_attn.attn"] for layer in range(LAYERS)]
                for number, layer in enumerate(attention):
                    if number == SPARED:
                        continue
                    for side in "kvq":
                        self.assertEqual(getattr(layer, f"_{side}_scale").item(), self.scale(number, side))
                used.clear()
                core.add_request("one", {"prompt_token_ids": self.prompts[0]}, vllm_support.sampling(2))
                core.step()
                (held,) = vllm_support.blocks(llm).coordinator.single_type_managers[0].req_to_blocks.values()
                for number, layer in enumerate(attention):
                    stored[number] = layer.kv_cache[held[0].block_id].clone()
        self.assertEqual(len(used), LAYERS)
        for number, (word, key_scale, value_scale, key, value) in enumerate(used):
            if number == SPARED:
                self.assertNotIn("fp8", word)
                continue
            self.assertIn("fp8", word)
            self.assertEqual((key_scale, value_scale), (self.scale(number, "k"), self.scale(number, "v")))
            if not STORES_FP8:
                continue
            # The first block: of each KV head the keys of 64 tokens, in an order of their own, and then the values.
            codes = stored[number].view(torch.uint8).reshape(KV_HEADS, 2 * 64, HEAD_DIM).split(64, dim=1)
            for got, rows, scale in ((codes[0], key, key_scale), (codes[1], value, value_scale)):
                expected = toward_zero(rows[:64].float() * torch.tensor(1 / scale))
                for head in range(KV_HEADS):
                    self.assertTrue(torch.equal(got[head].flatten().sort()[0], expected[:, head].flatten().sort()[0]))


if __name__ == "__main__":
    unittest.main()
