# SPDX-License-Identifier: Apache-2.0
"""Published models by their shapes alone: config.json, the tensors' names and sizes, and checkpoints whose weights are
holes in a file, which take no room on the disk and read as zeros."""
import json
from pathlib import Path

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 128256,
         "rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "hidden_act": "silu", "tie_word_embeddings": False,
         "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                  "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
         "bos_token_id": 128000, "eos_token_id": 128001, "num_key_value_heads": 8, "head_dim": 128}
CONFIGS = {
    "Llama 3.1 8B": {**LLAMA, "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
                     "num_attention_heads": 32},
    "Qwen3 30B-A3B": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
                      "num_hidden_layers": 48, "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 32,
                      "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-6,
                      "max_position_embeddings": 40960, "rope_theta": 1e6, "hidden_act": "silu", "norm_topk_prob": True,
                      "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
                      "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": False,
                      "bos_token_id": 151643, "eos_token_id": 151645},
    "Llama 3.1 70B": {**LLAMA, "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672,
                      "num_attention_heads": 64},
}


def tensors(config):
    """(name, shape) of every tensor, in the order of the layers."""
    hidden, vocabulary, head = config["hidden_size"], config["vocab_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "self_attn.q_proj.weight", (heads * head, hidden)
        yield layer + "self_attn.k_proj.weight", (kv_heads * head, hidden)
        yield layer + "self_attn.v_proj.weight", (kv_heads * head, hidden)
        yield layer + "self_attn.o_proj.weight", (hidden, heads * head)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        if "num_experts" not in config:
            yield from feed_forward(layer + "mlp.", config["intermediate_size"], hidden)
            continue
        yield layer + "self_attn.q_norm.weight", (head,)
        yield layer + "self_attn.k_norm.weight", (head,)
        yield layer + "mlp.gate.weight", (config["num_experts"], hidden)
        for expert in range(config["num_experts"]):
            yield from feed_forward(f"{layer}mlp.experts.{expert}.", config["moe_intermediate_size"], hidden)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocabulary, hidden)


def feed_forward(name, inner, hidden):
    yield name + "gate_proj.weight", (inner, hidden)
    yield name + "up_proj.weight", (inner, hidden)
    yield name + "down_proj.weight", (hidden, inner)


def values(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def write_hollow(folder, config):
    """A checkpoint in bfloat16 that takes no room: one file of safetensors whose values are a hole."""
    Path(folder).mkdir(parents=True)
    header, at = {}, 0
    for name, shape in tensors(config):
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * values(shape)]}
        at += 2 * values(shape)
    text = json.dumps(header).encode()
    with open(Path(folder) / "model.safetensors", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + at)
    (Path(folder) / "config.json").write_text(json.dumps(config, indent=1))
