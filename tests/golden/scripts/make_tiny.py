# SPDX-License-Identifier: Apache-2.0
"""Makes tiny random checkpoints of each supported architecture, in the layouts
that users have on disk, with what transformers computes from them.
python make_tiny.py OUT_DIR SEED
"""

import json, os, shutil, sys
import gguf, h5py, numpy as np, torch
from safetensors.torch import load_file, save_file
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

out, seed = sys.argv[1], int(sys.argv[2])
N = 96
base = dict(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=160,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    initializer_range=0.25,
    attn_implementation="eager",
    pad_token_id=None,
    bos_token_id=1,
    eos_token_id=2,
)
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
rope = lambda theta, **k: dict(rope_theta=theta, rope_type=k.pop("rope_type", "default"), **k)
MODELS = {
    "llama2_mha_f16": (
        LlamaForCausalLM,
        LlamaConfig(**{**base, "num_key_value_heads": 4}, rope_parameters=rope(1e4)),
        F16,
        {},
    ),
    "llama3_gqa_f32": (LlamaForCausalLM, LlamaConfig(**base, rope_parameters=rope(5e5)), F32, {}),
    "llama31_scaled_rope_bf16": (
        LlamaForCausalLM,
        LlamaConfig(
            **base,
            rope_parameters=rope(
                5e5,
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
        BF16,
        {},
    ),
    "yi_bf16_sharded": (
        LlamaForCausalLM,
        LlamaConfig(**base, rope_parameters=rope(5e6)),
        BF16,
        {"max_shard_size": "150KB"},
    ),
    "llama_linear_rope_f32": (
        LlamaForCausalLM,
        LlamaConfig(**base, rope_parameters=rope(1e4, rope_type="linear", factor=4.0)),
        F32,
        {},
    ),
    "mistral_bf16": (
        MistralForCausalLM,
        MistralConfig(**base, sliding_window=None, rope_parameters=rope(1e6)),
        BF16,
        {},
    ),
    "mistral_sliding_f32": (
        MistralForCausalLM,
        MistralConfig(**base, sliding_window=32, rope_parameters=rope(1e4)),
        F32,
        {},
    ),
    "qwen2_tied_bf16": (
        Qwen2ForCausalLM,
        Qwen2Config(**base, tie_word_embeddings=True, rope_parameters=rope(1e6)),
        BF16,
        {},
    ),
    "qwen2_yarn_f32": (
        Qwen2ForCausalLM,
        Qwen2Config(
            **base, rope_parameters=rope(1e6, rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
        ),
        F32,
        {},
    ),
    "qwen3_qknorm_f32": (Qwen3ForCausalLM, Qwen3Config(**base, head_dim=32, rope_parameters=rope(1e6)), F32, {}),
    "phi3_fused_f32": (Phi3ForCausalLM, Phi3Config(**base, rope_parameters=rope(1e4)), F32, {}),
    "phi3_longrope_f32": (
        Phi3ForCausalLM,
        Phi3Config(
            **{**base, "max_position_embeddings": 256},
            original_max_position_embeddings=64,
            rope_parameters=rope(
                1e4,
                rope_type="longrope",
                short_factor=[1.0 + 0.05 * i for i in range(8)],
                long_factor=[1.0 + 0.5 * i for i in range(8)],
                original_max_position_embeddings=64,
            ),
        ),
        F32,
        {},
    ),
    "llama_dynamic_rope_f32": (
        LlamaForCausalLM,
        LlamaConfig(
            **{**base, "max_position_embeddings": 64}, rope_parameters=rope(1e4, rope_type="dynamic", factor=2.0)
        ),
        F32,
        {},
    ),
    "gemma2_f32": (
        Gemma2ForCausalLM,
        Gemma2Config(**base, head_dim=16, query_pre_attn_scalar=16, sliding_window=32, rope_parameters=rope(1e4)),
        F32,
        {},
    ),
    "gemma3_text_f32": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(
            **base,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=32,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        ),
        F32,
        {},
    ),
}
os.makedirs(out, exist_ok=True)
gen = torch.Generator().manual_seed(seed)
with h5py.File(f"{out}/expected.h5", "w") as f:
    for i, (name, (cls, cfg, dtype, save)) in enumerate(MODELS.items()):
        torch.manual_seed(seed * 100 + i)
        m = cls(cfg).eval()
        for k, p in m.named_parameters():
            if k.endswith("bias") or "norm" in k:
                torch.nn.init.normal_(p, 1.0 if "norm" in k else 0.0, 0.2)
        m = m.to(dtype)
        d = f"{out}/{name}"
        shutil.rmtree(d, ignore_errors=True)
        m.save_pretrained(d, **save)
        m = cls.from_pretrained(
            d, dtype=F32, attn_implementation="eager"
        ).eval()  # as a user loads it: RoPE frequencies never pass through 16 bits
        x = torch.randint(3, 256, (1, N), generator=gen)
        with torch.no_grad():
            o = m(x, output_attentions=True, use_cache=True)
        g = f.create_group(name)
        g["tokens"] = x[0].numpy().astype(np.int32)
        g["logits"] = o.logits[0].numpy()
        g["attention_last16"] = np.stack([a[0, :, -16:].numpy() for a in o.attentions])
        g["keys"] = (
            np.stack([c.keys[0].numpy() for c in o.past_key_values.layers])
            if "sliding" not in name and "gemma" not in name
            else np.zeros(0)
        )
    # the layout that InternLM2 / InternLM2.5 checkpoints have: fused wqkv, other names, dynamic rope
    src, d = f"{out}/llama3_gqa_f32", f"{out}/internlm2_f32"
    os.makedirs(d, exist_ok=True)
    w, H, KV, D = load_file(f"{src}/model.safetensors"), 4, 2, 16
    r = {
        "model.tok_embeddings.weight": w["model.embed_tokens.weight"],
        "model.norm.weight": w["model.norm.weight"],
        "output.weight": w["lm_head.weight"],
    }
    for l in range(4):
        p, q = f"model.layers.{l}.", f"model.layers.{l}."
        Q, K, V = (w[p + f"self_attn.{n}_proj.weight"] for n in "qkv")
        fused = torch.cat([Q.view(KV, H // KV, D, -1), K.view(KV, 1, D, -1), V.view(KV, 1, D, -1)], 1)
        r[q + "attention.wqkv.weight"] = fused.reshape((H + 2 * KV) * D, -1)
        r[q + "attention.wo.weight"] = w[p + "self_attn.o_proj.weight"]
        r[q + "feed_forward.w1.weight"] = w[p + "mlp.gate_proj.weight"]
        r[q + "feed_forward.w3.weight"] = w[p + "mlp.up_proj.weight"]
        r[q + "feed_forward.w2.weight"] = w[p + "mlp.down_proj.weight"]
        r[q + "attention_norm.weight"] = w[p + "input_layernorm.weight"]
        r[q + "ffn_norm.weight"] = w[p + "post_attention_layernorm.weight"]
    save_file({k: v.contiguous() for k, v in r.items()}, f"{d}/model.safetensors")
    json.dump(
        dict(
            architectures=["InternLM2ForCausalLM"],
            model_type="internlm2",
            bias=False,
            hidden_act="silu",
            hidden_size=64,
            intermediate_size=160,
            max_position_embeddings=512,
            num_attention_heads=4,
            num_hidden_layers=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-6,
            rope_theta=500000,
            rope_scaling={"type": "dynamic", "factor": 2.0},
            tie_word_embeddings=False,
            torch_dtype="float32",
            vocab_size=256,
            bos_token_id=1,
            eos_token_id=2,
        ),
        open(f"{d}/config.json", "w"),
        indent=1,
    )
    f["internlm2_f32"] = h5py.SoftLink("/llama3_gqa_f32")  # below max_position_embeddings dynamic rope is plain rope
    # older config.json spelling: rope_theta and rope_scaling at the top level
    for name, old in {
        "llama31_scaled_rope_bf16": dict(
            rope_theta=500000.0,
            rope_scaling=dict(
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
        "llama_linear_rope_f32": dict(rope_theta=10000.0, rope_scaling=dict(type="linear", factor=4.0)),
    }.items():
        c = json.load(open(f"{out}/{name}/config.json"))
        c.pop("rope_parameters", None)
        c.pop("dtype", None)
        c.update(old, torch_dtype="bfloat16" if "bf16" in name else "float32")
        json.dump(c, open(f"{out}/{name}/config.json", "w"), indent=1)

    # GGUF of the GQA model, in four tensor types; llama-architecture files store q and k rows permuted
    def permute(x, heads):
        return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)

    for qt in ("F16", "Q8_0", "Q4_0", "Q5_1"):
        T = gguf.GGMLQuantizationType[qt]
        path = f"{out}/llama3_gqa_{qt}.gguf"
        g = gguf.GGUFWriter(path, "llama")
        g.add_block_count(4)
        g.add_context_length(512)
        g.add_embedding_length(64)
        g.add_feed_forward_length(160)
        g.add_head_count(4)
        g.add_head_count_kv(2)
        g.add_layer_norm_rms_eps(1e-6)
        g.add_rope_freq_base(5e5)
        g.add_rope_dimension_count(16)
        g.add_vocab_size(256)
        g.add_tokenizer_model("gpt2")
        g.add_token_list([f"<{k}>" for k in range(256)])
        deq = {}

        def put(name, key, fn=lambda a: a):
            a = fn(w[key].numpy())
            if a.ndim == 1:
                g.add_tensor(name, a)
                deq[key] = w[key]
                return
            qd = gguf.quants.quantize(a, T)
            g.add_tensor(name, qd, raw_dtype=T)
            b = gguf.quants.dequantize(qd, T).astype(np.float32).reshape(a.shape)
            if fn is not plain:
                h = 4 if "q_proj" in key else 2
                b = b.reshape(h, b.shape[0] // h // 2, 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)
            deq[key] = torch.tensor(b)

        plain = lambda a: a
        put("token_embd.weight", "model.embed_tokens.weight", plain)
        put("output_norm.weight", "model.norm.weight", plain)
        put("output.weight", "lm_head.weight", plain)
        for l in range(4):
            p = f"model.layers.{l}."
            put(f"blk.{l}.attn_q.weight", p + "self_attn.q_proj.weight", lambda a: permute(a, 4))
            put(f"blk.{l}.attn_k.weight", p + "self_attn.k_proj.weight", lambda a: permute(a, 2))
            for gn, hn in (
                ("attn_v", "self_attn.v_proj"),
                ("attn_output", "self_attn.o_proj"),
                ("ffn_gate", "mlp.gate_proj"),
                ("ffn_up", "mlp.up_proj"),
                ("ffn_down", "mlp.down_proj"),
                ("attn_norm", "input_layernorm"),
                ("ffn_norm", "post_attention_layernorm"),
            ):
                put(f"blk.{l}.{gn}.weight", p + hn + ".weight", plain)
        g.write_header_to_file()
        g.write_kv_data_to_file()
        g.write_tensors_to_file()
        g.close()
        m = LlamaForCausalLM(MODELS["llama3_gqa_f32"][1]).eval()
        m.load_state_dict(deq, strict=False)
        x = torch.tensor(f["llama3_gqa_f32/tokens"][()][None].astype(np.int64))
        with torch.no_grad():
            lo = m(x).logits[0].numpy()
        e = f.create_group(f"llama3_gqa_{qt}.gguf")
        e["tokens"] = x[0].numpy().astype(np.int32)
        e["logits"] = lo
    # GGUF of Llama 3.1 (rope factors as a tensor) and of Qwen2 (biases, rows not permuted), F32
    import math

    def gguf_f32(name, arch, cfg_name, permuted, extra):
        src = f"{out}/{cfg_name}"
        w = load_file(f"{src}/model.safetensors")
        c = MODELS[cfg_name][1]
        g = gguf.GGUFWriter(f"{out}/{name}", arch)
        g.add_block_count(4)
        g.add_context_length(512)
        g.add_embedding_length(64)
        g.add_feed_forward_length(160)
        g.add_head_count(4)
        g.add_head_count_kv(2)
        g.add_layer_norm_rms_eps(1e-6)
        g.add_rope_freq_base(c.rope_parameters["rope_theta"])
        g.add_rope_dimension_count(16)
        g.add_vocab_size(256)
        g.add_tokenizer_model("gpt2")
        g.add_token_list([f"<{k}>" for k in range(256)])
        for k, v in extra.items():
            g.add_tensor(k, v)
        g.add_tensor("token_embd.weight", w["model.embed_tokens.weight"].float().numpy())
        g.add_tensor("output_norm.weight", w["model.norm.weight"].float().numpy())
        if "lm_head.weight" in w:
            g.add_tensor("output.weight", w["lm_head.weight"].float().numpy())
        names = {
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj",
            "attn_norm": "input_layernorm",
            "ffn_norm": "post_attention_layernorm",
        }
        for l in range(4):
            for gn, hn in names.items():
                for part in ("weight", "bias"):
                    key = f"model.layers.{l}.{hn}.{part}"
                    if key in w:
                        a = w[key].float().numpy()
                        if permuted and gn in ("attn_q", "attn_k"):
                            a = permute(a, 4 if gn == "attn_q" else 2)
                        g.add_tensor(f"blk.{l}.{gn}.{part}", np.ascontiguousarray(a))
        g.write_header_to_file()
        g.write_kv_data_to_file()
        g.write_tensors_to_file()
        g.close()
        f[name] = h5py.SoftLink("/" + cfg_name)

    r = MODELS["llama31_scaled_rope_bf16"][1].rope_parameters
    inv = 1.0 / r["rope_theta"] ** (np.arange(0, 16, 2) / 16)
    fac = []
    for v in inv:
        wl = 2 * math.pi / v
        lo, hi = (
            r["original_max_position_embeddings"] / r["low_freq_factor"],
            r["original_max_position_embeddings"] / r["high_freq_factor"],
        )
        if wl < hi:
            fac.append(1.0)
        elif wl > lo:
            fac.append(r["factor"])
        else:
            s_ = (r["original_max_position_embeddings"] / wl - r["low_freq_factor"]) / (
                r["high_freq_factor"] - r["low_freq_factor"]
            )
            fac.append(1 / ((1 - s_) / r["factor"] + s_))
    gguf_f32(
        "llama31_rope_factors_F32.gguf",
        "llama",
        "llama31_scaled_rope_bf16",
        True,
        {"rope_freqs.weight": np.array(fac, np.float32)},
    )
    gguf_f32("qwen2_tied_F32.gguf", "qwen2", "qwen2_tied_bf16", False, {})
    # dequantisation of every GGUF block type, from random bytes
    rng = np.random.default_rng(seed)
    q = f.create_group("gguf_blocks")
    for qt in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"):
        T = gguf.GGMLQuantizationType[qt]
        n, size = gguf.GGML_QUANT_SIZES[T]
        while True:
            raw = rng.integers(0, 256, (4, size), dtype=np.uint8)
            v = gguf.quants.dequantize(raw, T)
            if np.isfinite(v).all() and np.abs(v).max() < 1e6:
                break
        q[qt + "/bytes"], q[qt + "/values"] = raw, v.astype(np.float32)
print("ok")
