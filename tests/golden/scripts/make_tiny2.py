# SPDX-License-Identifier: Apache-2.0
"""Makes tiny random checkpoints of newer families, and what transformers computes from them: python make_tiny2.py OUT_DIR SEED [FAMILY...]"""

import json, os, shutil, sys, traceback
import h5py, numpy as np, torch
from transformers import AutoConfig, AutoModelForCausalLM

out, seed, only = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
N, F32, BF16 = 96, torch.float32, torch.bfloat16
base = dict(
    vocab_size=256,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=512,
    initializer_range=0.2,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
)
moe = dict(num_experts=6, num_local_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)
FAMILIES = {  # type: (dtype, extra settings)
    "qwen3_moe": (BF16, {**moe, "decoder_sparse_step": 1, "mlp_only_layers": [0]}),
    "mixtral": (F32, {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "gpt_oss": (
        BF16,
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 32,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
    "glm4_moe": (
        F32,
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 32,
            "n_group": 1,
            "topk_group": 1,
            "partial_rotary_factor": 0.5,
            "use_qk_norm": True,
        },
    ),
    "qwen2_moe": (BF16, {**moe, "shared_expert_intermediate_size": 40, "norm_topk_prob": False}),
    "olmoe": (BF16, {"hidden_size": 64, "num_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32}),
    "granitemoe": (
        BF16,
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.5,
            "logits_scaling": 2.0,
        },
    ),
    "phimoe": (BF16, {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "minimax_m2": (BF16, {"num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 8}),
    "dots1": (
        BF16,
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 32,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
    "ernie4_5_moe": (
        BF16,
        {
            "moe_num_experts": 4,
            "moe_k": 2,
            "moe_intermediate_size": 32,
            "moe_num_shared_experts": 1,
            "moe_layer_start_index": 1,
        },
    ),
    "smollm3": (BF16, {"no_rope_layer_interval": 2, "use_sliding_window": False}),
    "olmo2": (BF16, {}),
    "olmo3": (F32, {"sliding_window": 32, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}),
    "granite": (
        BF16,
        {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.5, "logits_scaling": 2.0},
    ),
    "exaone4": (
        F32,
        {
            "sliding_window": 32,
            "sliding_window_pattern": 4,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        },
    ),
    "cohere2": (
        F32,
        {
            "sliding_window": 32,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
            "logit_scale": 0.25,
            "tie_word_embeddings": True,
        },
    ),
    "ministral": (F32, {"sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"] * 2}),
    "starcoder2": (BF16, {"sliding_window": None, "use_bias": True}),
    "glm4": (BF16, {"partial_rotary_factor": 0.5, "attention_bias": True}),
    "phi": (F32, {"partial_rotary_factor": 0.5}),
    "stablelm": (F32, {"hidden_size": 64, "partial_rotary_factor": 0.25, "use_qkv_bias": True}),
    "nemotron": (F32, {"partial_rotary_factor": 0.5}),
    "ernie4_5": (F32, {}),
    "seed_oss": (BF16, {}),
    "arcee": (F32, {}),
    "hunyuan_v1_dense": (F32, {}),
    "apertus": (F32, {}),
    "llama4_text": (
        BF16,
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "intermediate_size": 32,
            "intermediate_size_mlp": 80,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 32,
            "no_rope_layers": [1, 1, 1, 0],
            "use_qk_norm": True,
            "attn_temperature_tuning": True,
            "floor_scale": 16,
            "attn_scale": 0.1,
        },
    ),
    "deepseek_v2": (
        F32,
        {
            "q_lora_rank": 24,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 32,
            "topk_method": "greedy",
            "n_group": 1,
            "topk_group": 1,
        },
    ),
    "deepseek_v3": (
        BF16,
        {
            "head_dim": 8,
            "q_lora_rank": 24,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "num_key_value_heads": 4,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 32,
            "n_group": 2,
            "topk_group": 1,
            "routed_scaling_factor": 1.5,
        },
    ),
    "qwen3_next": (
        BF16,
        {
            **moe,
            "shared_expert_intermediate_size": 40,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
            "partial_rotary_factor": 0.5,
        },
    ),
    "qwen3_5_text": (
        F32,
        {
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        },
    ),
    "qwen3_5_moe_text": (
        BF16,
        {
            **moe,
            "shared_expert_intermediate_size": 40,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        },
    ),
    "gemma4_text": (
        F32,
        {
            "sliding_window": 32,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 256,
            "num_kv_shared_layers": 0,
            "global_head_dim": 32,
            "tie_word_embeddings": True,
        },
    ),
    "gemma3n_text": (
        F32,
        {
            "sliding_window": 32,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 256,
            "num_kv_shared_layers": 0,
            "laurel_rank": 8,
            "altup_num_inputs": 2,
            "activation_sparsity_pattern": [0.0] * 4,
            "tie_word_embeddings": True,
        },
    ),
    "lfm2": (
        F32,
        {
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "block_auto_adjust_ff_dim": False,
            "conv_L_cache": 3,
        },
    ),
    "granitemoehybrid": (
        BF16,
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": ["mamba", "attention"] * 2,
            "mamba_n_heads": 4,
            "mamba_d_head": 24,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "shared_intermediate_size": 64,
            "position_embedding_type": "rope",
        },
    ),
}
os.makedirs(out, exist_ok=True)
bad = []
with h5py.File(f"{out}/expected.h5", "a") as f:
    for i, (kind, (dtype, extra)) in enumerate(FAMILIES.items()):
        if only and kind not in only:
            continue
        try:
            torch.manual_seed(seed * 1000 + i)
            gen = torch.Generator().manual_seed(seed * 1000 + i)
            cfg = AutoConfig.for_model(kind, **{**base, **extra})
            m = AutoModelForCausalLM.from_config(cfg, dtype=F32).eval()
            with torch.no_grad():
                for name, p in list(m.named_parameters()) + [(n, b) for n, b in m.named_buffers() if "bias" in n]:
                    if p.dtype != F32:
                        continue
                    if "A_log" in name or "dt_bias" in name:
                        p.copy_(torch.rand(p.shape, generator=gen) * 1.5)
                        continue
                    mean = (
                        1.0
                        if (
                            "norm" in name
                            and "weight" in name
                            and kind not in ("gemma3n_text", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
                        )
                        else 0.0
                    )
                    p.copy_(torch.randn(p.shape, generator=gen) * 0.2 + mean)
            d = f"{out}/{kind}"
            shutil.rmtree(d, ignore_errors=True)
            m.to(dtype).save_pretrained(d)
            m = AutoModelForCausalLM.from_pretrained(d, dtype=F32, attn_implementation="eager").eval()
            x = torch.randint(3, 256, (1, N), generator=gen)
            with torch.no_grad():
                o = m(x, output_attentions=True, use_cache=False)
                y = m(torch.roll(x, 7, 1), use_cache=False).logits[0]
            lo = o.logits[0]
            assert torch.isfinite(lo).all(), "not finite"
            assert (lo - y).abs().max() > 0.05, "input does not matter"
            assert len(set(lo.argmax(-1).tolist())) > 8, "argmax constant"
            if kind in f:
                del f[kind]
            g = f.create_group(kind)
            g["tokens"], g["logits"] = x[0].numpy().astype(np.int32), lo[-32:].numpy()  # of the last 32 positions
            kinds = getattr(cfg, "layer_types", None) or ["full_attention"] * 4
            with_attention = [
                l
                for l, t in enumerate(kinds)
                if t in ("full_attention", "sliding_attention", "chunked_attention", "attention")
            ]
            got = [a for a in o.attentions or () if a is not None and a.ndim == 4]
            att = list(zip(with_attention, got)) if len(got) == len(with_attention) else []
            if att:
                same = len({tuple(a.shape) for _, a in att}) == 1
                z = (
                    g.create_dataset("attention_last16", data=np.stack([a[0, :, -16:, :N].numpy() for _, a in att]))
                    if same
                    else None
                )
                if z is not None:
                    z.attrs["layers"] = [l for l, _ in att]
            print(kind, "ok", f"logits {lo.abs().max():.1f}", "attention layers", [l for l, _ in att], flush=True)
        except Exception as e:
            bad.append(kind)
            print(kind, "FAILED", type(e).__name__, str(e)[:160].replace("\n", " "), flush=True)
            shutil.rmtree(f"{out}/{kind}", ignore_errors=True)
print("failed:", bad)
