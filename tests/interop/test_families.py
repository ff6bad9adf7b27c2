# SPDX-License-Identifier: Apache-2.0
"""Random checkpoints of every family that kvatlas loads, of odd sizes, give transformers' logits; so do quantised ones."""

import json
import shutil
import tempfile
import unittest
from pathlib import Path

import support
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

# Heads that are no power of two, all on one KV head, and a width that no vector length divides.
SIZES = {
    "hidden_size": 40,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "num_hidden_layers": 3,
    "intermediate_size": 52,
    "vocab_size": 131,
    "max_position_embeddings": 512,
    **{f"{name}_token_id": 0 for name in ("pad", "bos", "eos")},
}
EXPERTS = {"num_experts": 3, "num_local_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
ALL_CHOSEN = {"num_experts": 3, "num_local_experts": 3, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
ONE = {"num_experts": 1, "num_local_experts": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 20}
GROUPED = {"n_routed_experts": 6, "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2, "moe_intermediate_size": 12}
DELTA = {
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
SHARED = {"shared_expert_intermediate_size": 28}
LATENT = {
    "q_lora_rank": 18,
    "kv_lora_rank": 14,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "head_dim": 6,  # as transformers takes the sizes of RoPE from
    "v_head_dim": 12,
    "num_key_value_heads": 5,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.7,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 64, "mscale": 0.7}
WINDOWED = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]}
GEMMA4 = {
    **WINDOWED,
    "num_hidden_layers": 4,
    "global_head_dim": 14,
    "hidden_size_per_layer_input": 6,
    "vocab_size_per_layer_input": 131,
    "num_kv_shared_layers": 0,
}
GEMMA3N = {
    **WINDOWED,
    "num_hidden_layers": 4,
    "hidden_size_per_layer_input": 6,
    "vocab_size_per_layer_input": 97,  # tokens beyond it take the inputs of token 0
    "intermediate_size": [52, 52, 36, 60],
    "activation_sparsity_pattern": [0.9, 0.0, 0.6, 0.0],
    "altup_num_inputs": 3,
    "altup_active_idx": 1,
    "laurel_rank": 7,
    "num_kv_shared_layers": 0,
}
LLAMA4 = {
    "num_hidden_layers": 4,
    "num_local_experts": 3,
    "intermediate_size_mlp": 44,
    "attention_chunk_size": 16,
    "floor_scale": 9,
    "attn_scale": 0.3,
}
MAMBA = {
    "layer_types": ["mamba", "attention", "mamba"],
    "mamba_n_heads": 6,
    "mamba_d_head": 20,
    "mamba_expand": 3,
    "mamba_d_state": 10,
    "mamba_d_conv": 3,
    "mamba_n_groups": 3,
    "shared_intermediate_size": 28,
}

# Families, and behind some names what is special there.
CASES = {
    "llama": {},
    "mistral": {"sliding_window": 4096},
    "qwen2": {},
    "qwen3": {},
    "phi3": {},
    "gemma2": {"sliding_window": 16},
    "gemma3_text": {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "apertus": {},
    "arcee": {},
    "cohere2": {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "deepseek_v2": {**GROUPED, **LATENT, "topk_method": "group_limited_greedy", "rope_parameters": {**YARN, "mscale_all_dim": 0.9}},
    "deepseek_v2 without a rank of queries": {**GROUPED, **LATENT, "q_lora_rank": None, "topk_method": "greedy"},
    "deepseek_v3": {**GROUPED, **LATENT, "rope_interleave": True},
    "deepseek_v3 with halves rotated": {**GROUPED, **LATENT, "rope_interleave": False, "norm_topk_prob": False, "rope_parameters": YARN},
    "dots1": {**GROUPED, "first_k_dense_replace": 2, "n_shared_experts": 2},
    "ernie4_5": {"use_bias": True},
    "ernie4_5_moe": {"moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 12, "moe_layer_start_index": 0},
    "exaone4": {"sliding_window": None, "layer_types": ["full_attention"] * 3},
    "gemma3n_text": {**GEMMA3N},
    "gemma3n_text of shared keys": {**GEMMA3N, "num_kv_shared_layers": 2, "altup_correct_scale": False},
    "gemma4_text": {**GEMMA4},
    "gemma4_text of shared keys": {**GEMMA4, "num_kv_shared_layers": 2, "use_double_wide_mlp": True},
    "gemma4_text of experts": {
        **GEMMA4,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": True,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 5,
        "num_experts": 3,
        "top_k_experts": 2,
        "moe_intermediate_size": 12,
    },
    "glm4": {},
    "glm4_moe": {**GROUPED, "use_qk_norm": True, "first_k_dense_replace": 1, "routed_scaling_factor": 1.7},
    "granite": {"attention_multiplier": 0.3, "residual_multiplier": 0.7, "logits_scaling": 3.0},
    "granitemoe": {**EXPERTS, "embedding_multiplier": 2.0},
    "granitemoehybrid": {**EXPERTS, **MAMBA, "position_embedding_type": "nope"},
    "granitemoehybrid without experts": {**MAMBA, "num_local_experts": 0, "position_embedding_type": "rope"},
    "hunyuan_v1_dense": {},
    "llama4_text": {**LLAMA4, "interleave_moe_layer_step": 2},
    "llama4_text of two experts a token": {
        **LLAMA4,
        "num_experts_per_tok": 2,
        "use_qk_norm": False,
        "attn_temperature_tuning": False,
        "no_rope_layers": [1, 0, 1, 0],
    },
    "minimax_m2": {**EXPERTS},
    "ministral": {"sliding_window": 4096},
    "mixtral": {**ALL_CHOSEN},
    "nemotron": {},
    "olmo2": {},
    "olmo3": {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "olmoe": {**ONE},
    "phi": {},
    "phimoe": {**EXPERTS},
    "qwen2_moe": {**EXPERTS, **SHARED, "decoder_sparse_step": 2},
    "qwen3_moe": {**EXPERTS, "mlp_only_layers": [1], "norm_topk_prob": False},
    "seed_oss": {"attention_out_bias": True, "mlp_bias": True},
    "smollm3": {"no_rope_layers": [0, 1, 0]},
    "stablelm": {"use_parallel_residual": True},
    "starcoder2": {"sliding_window": 16},
    "gpt_oss": {**EXPERTS, "sliding_window": 16},
    "lfm2": {"layer_types": ["full_attention", "conv", "conv"], "block_auto_adjust_ff_dim": True, "block_multiple_of": 8},
    "qwen3_next": {**EXPERTS, **SHARED, **DELTA},
    "qwen3_5_text": {**DELTA},
    "qwen3_5_moe_text": {**EXPERTS, **SHARED, **DELTA},
}
TOKENS = 61


def random_model(kind: str, **sizes):
    """A model whose every parameter matters; norms stay near 1."""
    torch.manual_seed(len(kind))
    config = AutoConfig.for_model(kind, **{**SIZES, **sizes})
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            near_one = "norm" in name and name.endswith("weight") and parameter.dim() == 1
            spread = 0.1 if near_one else 0.25
            parameter.copy_(torch.randn(parameter.shape) * spread + (1.0 if near_one else 0.0))
        for name, buffer in model.named_buffers():
            if "correction_bias" in name:
                buffer.copy_(torch.randn(buffer.shape) * 0.1)
    return model


class Families(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def check(self, folder: Path, model):
        """kvatlas's best logits behind a prompt are the model's."""
        torch.manual_seed(1)
        ids = torch.randint(2, model.config.vocab_size, (TOKENS,))
        prompts = self.folder / "prompt.jsonl"
        prompts.write_text(json.dumps({"tokens": ids.tolist()}) + "\n", encoding="utf-8")
        out = support.run("generate", "--model", folder, "--prompts", prompts, "--new", "4", "--ignore-eos", "--json")
        answer = json.loads(out.splitlines()[0])
        with torch.inference_mode():
            logits = model(ids[None], use_cache=False).logits[0, -1]
        for token, logit in answer["top"]:
            self.assertAlmostEqual(logit, logits[token].item(), delta=2e-3)
        self.assertEqual(answer["top"][0][0], logits.argmax().item())
        for token in answer["tokens"]:  # decoded from the cache, as a pass over all of them gives them
            with torch.inference_mode():
                self.assertEqual(token, model(ids[None], use_cache=False).logits[0, -1].argmax().item())
            ids = torch.cat([ids, torch.tensor([token])])

    def test_families(self):
        for name, sizes in CASES.items():
            with self.subTest(name):
                model = random_model(name.split()[0], **sizes)
                folder = self.folder / name.replace(" ", "_")
                model.save_pretrained(folder)
                self.check(folder, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval())

    def quantised(self, kind: str, sizes: dict, quantise, settings: dict):
        """Writes a checkpoint whose matrices `quantise` changes, and gives the model of what they decode to."""
        folder = self.folder / f"{kind}-{len(list(self.folder.iterdir()))}"
        model = random_model(kind, **sizes)
        model.save_pretrained(folder)
        tensors, plain = load_file(folder / "model.safetensors"), {}
        for name in list(tensors):
            if name.endswith("_proj.weight"):
                stored, decoded = quantise(name, tensors.pop(name))
                tensors.update(stored)
                plain[name] = decoded
        reference = folder / "plain"
        model.save_pretrained(reference)
        save_file({**load_file(reference / "model.safetensors"), **plain}, reference / "model.safetensors", {"format": "pt"})
        save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
        self.check(folder, AutoModelForCausalLM.from_pretrained(reference, dtype=torch.float32).eval())

    def test_fp8_by_blocks(self):
        def quantise(name, weight):
            rows, columns = (-(-size // 16) for size in weight.shape)
            padded = torch.zeros(rows * 16, columns * 16)
            padded[: weight.shape[0], : weight.shape[1]] = weight
            blocks = padded.view(rows, 16, columns, 16)
            scale = blocks.abs().amax((1, 3)).clamp_min(1e-6) / 448
            codes = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn)
            decoded = (codes.float() * scale[:, None, :, None]).view(padded.shape)
            cut = (slice(0, weight.shape[0]), slice(0, weight.shape[1]))
            return {name: codes.view(padded.shape)[cut], name + "_scale_inv": scale}, decoded[cut].contiguous()

        settings = {"quant_method": "fp8", "weight_block_size": [16, 16]}
        self.quantised("qwen3_moe", EXPERTS, quantise, settings)

    def test_a_scale_for_each_row(self):
        def quantise(code_type, most):
            def of_rows(name, weight):
                scale = (weight.abs().amax(1, keepdim=True) / most).bfloat16()
                scaled = weight / scale.float()
                codes = (scaled.round() if code_type == torch.int8 else scaled).to(code_type)
                return {name: codes, name + "_scale": scale}, codes.float() * scale.float()

            return of_rows

        for code_type, most, format_name in ((torch.int8, 127, "int-quantized"), (torch.float8_e4m3fn, 448, "float-quantized")):
            with self.subTest(format_name):
                settings = {"quant_method": "compressed-tensors", "format": format_name}
                self.quantised("llama", {}, quantise(code_type, most), settings)

    def test_compressed_tensors_in_words(self):
        """Packed by compressed-tensors itself: with and without zeros, groups in disorder, 3 to 8 bits."""

        def quantise(bits, group, zeros, disorder):
            def of_groups(name, weight):
                rows, columns = weight.shape
                count = -(-columns // group)
                order = torch.arange(columns) // group
                if disorder:
                    order = order[torch.randperm(columns)]
                scale = (torch.rand(rows, count) * 0.2 + 0.02).bfloat16()
                least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
                zero = torch.randint(least, most + 1, (rows, count), dtype=torch.int8) if zeros else torch.zeros(rows, count, dtype=torch.int8)
                steps = (weight / scale.float()[:, order]).round() + zero[:, order]
                codes = steps.clamp(least, most).to(torch.int8)
                base = name.removesuffix("weight")
                stored = {
                    base + "weight_packed": pack_to_int32(codes, bits),
                    base + "weight_scale": scale,
                    base + "weight_shape": torch.tensor([rows, columns]),
                }
                if zeros:
                    stored[base + "weight_zero_point"] = pack_to_int32(zero, bits, packed_dim=0)
                if disorder:
                    stored[base + "weight_g_idx"] = order.int()
                assert torch.equal(unpack_from_int32(stored[base + "weight_packed"], bits, weight.shape), codes)
                return stored, (codes.float() - zero[:, order].float()) * scale.float()[:, order]

            return of_groups

        for bits, group, zeros, disorder in ((4, 8, False, False), (4, 16, True, True), (8, 40, False, False), (3, 20, True, False)):
            with self.subTest(bits=bits, group=group):
                weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": group, "symmetric": not zeros}
                settings = {
                    "quant_method": "compressed-tensors",
                    "format": "pack-quantized",
                    "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
                }
                self.quantised("llama", {}, quantise(bits, group, zeros, disorder), settings)

    def test_gptq(self):
        """Columns of words; zeros less 1 in the first format; groups in the order of activations."""

        def in_words(codes, bits):
            """Each row [n] as one stream of bits, cut into words of 32."""
            rows, count = codes.shape
            streams = (codes[:, :, None] >> torch.arange(bits)) & 1
            streams = torch.nn.functional.pad(streams.view(rows, count * bits), (0, -count * bits % 32)).view(rows, -1, 32)
            words = (streams.long() << torch.arange(32)).sum(2)
            return torch.where(words >= 1 << 31, words - (1 << 32), words).int()

        def quantise(bits, group, shift):
            def of_groups(name, weight):
                rows, columns = weight.shape
                count = -(-columns // group)
                order = (torch.arange(columns) // group)[torch.randperm(columns)]
                scale = (torch.rand(count, rows) * 0.2 + 0.02).half()
                zero = torch.randint(1, 1 << bits, (count, rows))
                codes = ((weight.T / scale.float()[order]).round() + zero[order]).clamp(0, (1 << bits) - 1).int()
                base = name.removesuffix("weight")
                stored = {
                    base + "qweight": in_words(codes.T, bits).T,
                    base + "qzeros": in_words((zero - shift).int(), bits),
                    base + "scales": scale,
                    base + "g_idx": order.int(),
                }
                return stored, ((codes - zero[order]).float() * scale.float()[order]).T.contiguous()

            return of_groups

        for bits, group, version in ((4, 8, "gptq"), (8, 16, "gptq"), (3, 40, "gptq"), (4, 20, "gptq_v2"), (2, 8, "gptq_v2")):
            with self.subTest(bits=bits, group=group):
                settings = {"quant_method": "gptq", "bits": bits, "group_size": group, "checkpoint_format": version}
                self.quantised("qwen2", {}, quantise(bits, group, 1 if version == "gptq" else 0), settings)

    def test_awq(self):
        def in_words(codes):
            """Eight neighbours of a row to a word, in AWQ's order."""
            places = codes.view(codes.shape[0], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].long()
            words = (places << (4 * torch.arange(8))).sum(2)
            return torch.where(words >= 1 << 31, words - (1 << 32), words).int()

        def quantise(name, weight):
            rows, columns = weight.shape
            group = 8
            order = torch.arange(columns) // group
            count = -(-columns // group)
            scale = (torch.rand(count, rows) * 0.2 + 0.02).half()
            zero = torch.randint(0, 16, (count, rows))
            codes = ((weight.T / scale.float()[order]).round() + zero[order]).clamp(0, 15).int()
            base = name.removesuffix("weight")
            stored = {base + "qweight": in_words(codes), base + "qzeros": in_words(zero), base + "scales": scale}
            return stored, ((codes - zero[order]).float() * scale.float()[order]).T.contiguous()

        sizes = {**EXPERTS, "intermediate_size": 56, "moe_intermediate_size": 24}
        settings = {"quant_method": "awq", "bits": 4, "group_size": 8, "zero_point": True, "version": "gemm"}
        self.quantised("qwen3_moe", sizes, quantise, settings)

    def test_mxfp4(self):
        sizes = {**EXPERTS, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
        folder = self.folder / "mxfp4"
        model = random_model("gpt_oss", **sizes)
        model.save_pretrained(folder)
        tensors = load_file(folder / "model.safetensors")
        plain = self.folder / "mxfp4-plain"
        model.save_pretrained(plain)
        decoded = dict(tensors)
        for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
            count, columns, rows = tensors.pop(name).shape  # the dense ones are transposed
            blocks = torch.randint(0, 256, (count, rows, columns // 32, 16), dtype=torch.uint8)
            scales = torch.randint(118, 126, (count, rows, columns // 32), dtype=torch.uint8)
            tensors |= {name + "_blocks": blocks, name + "_scales": scales}
            decoded[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        save_file(decoded, plain / "model.safetensors", {"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "mxfp4"}}))
        self.check(folder, AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32).eval())


if __name__ == "__main__":
    unittest.main()
