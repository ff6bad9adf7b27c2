# SPDX-License-Identifier: Apache-2.0
"""vLLM loads the scales that 'kvatlas export' lays over a checkpoint, each layer its own, and stores numbers by them, every
one in the code that the simulation gives it. The tokens that follow are compared with those of 'kvatlas evaluate'."""

import contextlib
import json
import random
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import support
import torch
import vllm_support
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, DynamicCache

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 4, 4, 2, 32
SPARED = 2  # a layer that stays at 16 bits
FLAGS = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
STORES_FP8 = bool({"avx512f", "amx_tile"} & FLAGS)  # vLLM's kernels for CPUs know FP8 there alone


def toward_zero(numbers: torch.Tensor) -> torch.Tensor:
    """The codes of E4M3 as vLLM makes them on CPUs: what does not fit is cut off."""
    table = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    sizes = torch.searchsorted(table, numbers.abs().clamp(max=448), right=True) - 1
    return (sizes + 128 * numbers.signbit()).to(torch.uint8)


def setUpModule():
    vllm_support.install_plugin()  # for its knowledge of how rows lie in blocks


class Scales(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        model = support.small_llama(LAYERS, HEADS, KV_HEADS, hidden_size=HEADS * HEAD_DIM, head_dim=HEAD_DIM)
        with torch.no_grad():
            # Scales far from 1 that differ by layer, and attention as it was.
            for number, layer in enumerate(model.model.layers):
                for stored, other, factor in (("k", "q", 4.0 ** (number + 1)), ("v", "o", 0.05 * (number + 1))):
                    getattr(layer.self_attn, f"{stored}_proj").weight *= factor
                    getattr(layer.self_attn, f"{other}_proj").weight /= factor
        model.save_pretrained(cls.folder / "M")
        draw = random.Random(3)
        cls.prompts = [[draw.randrange(128) for _ in range(count)] for count in (100, 60)]
        prompts = cls.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"tokens": ids}) + "\n" for ids in cls.prompts), encoding="utf-8")
        ranges = cls.folder / "ranges.h5"
        support.run("profile", "--model", cls.folder / "M", "--prompts", prompts, "--capture", "ranges", "-o", ranges)
        formats = ["16" if layer == SPARED else "fp8" for layer in range(LAYERS)]
        cls.document = {
            "schema": "kvatlas.policy/1.0",
            "model": {"architecture": "llama", "layers": LAYERS, "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM},
            "provenance": {"lengths": [100]},
            "precision": {"settings": {"prefill": "rounded"}, "result": {"keys": formats, "values": formats}},
        }
        cls.out = support.export(cls.document, "vllm", "--ranges", ranges, "--checkpoint", cls.folder / "M")
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

    def computed_codes(self, prompt: list[int]) -> list[list[torch.Tensor]]:
        """Of each layer's keys and values, [KV heads, tokens, channels], by transformers over a cache that is rounded."""
        codes, scale = [], self.scale

        class Rounded(DynamicCache):
            def update(self, keys, values, layer, *given, **named):
                scales = [scale(layer, side) for side in "kv"]
                made = [toward_zero(of * torch.tensor(1 / one)) for of, one in zip((keys, values), scales)]
                codes.append([of[0] for of in made])
                read = [of.view(torch.float8_e4m3fn).float() * one for of, one in zip(made, scales)]
                return (keys, values) if layer == SPARED else read

        model = AutoModelForCausalLM.from_pretrained(self.folder / "M", dtype=torch.float32).eval()
        with torch.no_grad():
            model(torch.tensor([prompt]), past_key_values=Rounded())
        return codes

    @unittest.skipUnless(STORES_FP8, "vLLM's kernels store FP8 on CPUs with AVX-512 or AMX alone")
    def test_tokens_are_those_of_the_simulation(self):
        file = self.folder / "scales.json"
        support.run("import", "kv-cache", self.out / "model", "-o", file)
        read = json.loads(file.read_text(encoding="utf-8"))["precision"]["result"]
        for side, name in (("k", "keys"), ("v", "values")):
            imported = torch.tensor(read["scales"][name]).flatten().tolist()
            self.assertEqual(imported, [self.scale(layer, side) for layer in range(LAYERS)])
        part = self.document["precision"]
        policy = support.written(self.document | {"precision": part | {"result": part["result"] | read}})
        draw = random.Random(4)
        prompts = [[draw.randrange(128) for _ in range(draw.randrange(20, 100))] for _ in range(40)]
        options = {"skip_tokenizer_init": True, "max_num_seqs": 8, "max_num_batched_tokens": 48}
        with vllm_support.engine(self.out / "model", **vllm_support.arguments(self.out / "vllm.yaml"), **options) as llm:
            served = vllm_support.generate(llm, prompts, 8)
        # Few codes differ (below), but then so may all tokens that follow, for rounding changes most tokens of this model.
        agree = []
        for other in (policy, support.written(self.document), "streaming:recent=9999"):
            computed = vllm_support.evaluated(self.folder / "M", other, prompts, 8, "--as", "vllm:cpu")
            agree.append(sum(one == two for mine, theirs in zip(served, computed) for one, two in zip(mine, theirs)))
        print(f"equal of 320 tokens: {agree[0]}, without the scales {agree[1]}, without fp8 {agree[2]}", file=sys.stderr)
        self.assertGreater(agree[0], 0.8 * 320)
        self.assertLess(max(agree[1:]), 0.3 * 320)

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
                    stored[number] = layer.kv_cache[[block.block_id for block in held]].clone()
        self.assertEqual(len(used), LAYERS)
        computed, differ = self.computed_codes(self.prompts[0]), []
        for number, (word, key_scale, value_scale, key, value) in enumerate(used):
            if number == SPARED:
                self.assertNotIn("fp8", word)
                continue
            self.assertIn("fp8", word)
            self.assertEqual((key_scale, value_scale), (self.scale(number, "k"), self.scale(number, "v")))
            if not STORES_FP8:
                continue
            from kvatlas_vllm.layouts import KeysTransposed

            tokens = torch.arange(len(self.prompts[0])).expand(KV_HEADS, -1)
            codes = KeysTransposed(stored[number].view(torch.uint8)).keys_and_values(tokens)
            for got, rows, scale, mine in zip(codes, (key, value), (key_scale, value_scale), computed[number]):
                expected = toward_zero(rows.float() * torch.tensor(1 / scale))
                self.assertTrue(torch.equal(got, expected.transpose(0, 1)))
                differ.append((got != mine).sum().item())
        # Before they are rounded, numbers of deeper layers differ by what sums in float32 differ by.
        self.assertEqual(differ[:2], [0, 0])
        self.assertLess(sum(differ), 0.002 * 6 * len(self.prompts[0]) * KV_HEADS * HEAD_DIM)


if __name__ == "__main__":
    unittest.main()
