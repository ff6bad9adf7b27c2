# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of Llama 3.1 8B's shapes with random weights in bfloat16, of all its layers (16 GB in four shards) or fewer."""
import json
import random
import sys

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 4096, 14336, 32, 8, 128, 128256
SHARDS = 4
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "num_hidden_layers": 32, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCAB, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072, "hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192},
    "bos_token_id": 128000, "eos_token_id": 128001,
}


def tensors(layers):
    """(name, shape) of every tensor, in the order of the layers."""
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (HIDDEN,)
        yield layer + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield layer + "self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield layer + "self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield layer + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield layer + "post_attention_layernorm.weight", (HIDDEN,)
        yield layer + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield layer + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield layer + "mlp.down_proj.weight", (HIDDEN, INNER)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def values(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def noise(count):
    """`count` random bfloat16 values of either sign between 1/128 and 1/32."""
    sign_and_exponent = bytes(0x3C | (byte & 1) << 7 for byte in range(256))
    block = bytearray(2 * count)
    block[0::2] = random.randbytes(count)
    block[1::2] = random.randbytes(count).translate(sign_and_exponent)
    return block


def write_checkpoint(folder, layers=CONFIG["num_hidden_layers"]):
    """Of so many layers; the folder must be there."""
    random.seed(8)
    block = memoryview(noise(1 << 24))
    one = b"\x80\x3f"
    everything = list(tensors(layers))
    share = sum(values(shape) for _, shape in everything) / SHARDS
    shards, filled = [[]], 0
    for name, shape in everything:
        if filled > share * len(shards):
            shards.append([])
        shards[-1].append((name, shape))
        filled += values(shape)
    where = {}
    for number, members in enumerate(shards, 1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        print(f"writing {file_name}", file=sys.stderr)
        header, at = {}, 0
        for name, shape in members:
            where[name] = file_name
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * values(shape)]}
            at += 2 * values(shape)
        text = json.dumps(header).encode()
        with open(folder / file_name, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for _, shape in members:
                left = 2 * values(shape)
                if len(shape) == 1:
                    out.write(one * shape[0])
                    continue
                start = 2 * random.randrange(len(block) // 4)
                while left:
                    piece = block[start:start + left]
                    out.write(piece)
                    left -= len(piece)
                    start = 0
    index = {"metadata": {"total_size": 2 * filled}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}, indent=1))  # last: without it the folder is no model
