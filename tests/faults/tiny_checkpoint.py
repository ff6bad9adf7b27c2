# SPDX-License-Identifier: Apache-2.0
"""A Llama of a few thousand weights with a tokenizer of bytes, as a Hugging Face folder: what the faults happen to."""
import json
import random
import struct
from pathlib import Path

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCABULARY = 4, 32, 4, 2, 8, 64, 256

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM, "intermediate_size": INNER, "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "torch_dtype": "float32",
}


def shapes() -> dict[str, list[int]]:
    """The tensors by transformers' names."""
    out = {"model.embed_tokens.weight": [VOCABULARY, HIDDEN], "model.norm.weight": [HIDDEN],
           "lm_head.weight": [VOCABULARY, HIDDEN]}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        out[at + "input_layernorm.weight"] = out[at + "post_attention_layernorm.weight"] = [HIDDEN]
        out[at + "self_attn.q_proj.weight"] = [HEADS * HEAD_DIM, HIDDEN]
        out[at + "self_attn.k_proj.weight"] = out[at + "self_attn.v_proj.weight"] = [KV_HEADS * HEAD_DIM, HIDDEN]
        out[at + "self_attn.o_proj.weight"] = [HIDDEN, HEADS * HEAD_DIM]
        out[at + "mlp.gate_proj.weight"] = out[at + "mlp.up_proj.weight"] = [INNER, HIDDEN]
        out[at + "mlp.down_proj.weight"] = [HIDDEN, INNER]
    return out


def safetensors(seed: int) -> bytes:
    draw = random.Random(seed)
    header, data = {}, bytearray()
    for name, shape in shapes().items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if len(shape) == 1 else [draw.gauss(0, 0.35) for _ in range(count)]
        if name == "lm_head.weight":  # so that it writes letters and spaces, which the scores can compare
            values = [v if chr(i // HIDDEN) in " abcdefghijklmnopqrstuvwxyz" else 0.0 for i, v in enumerate(values)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def byte_letters() -> list[str]:
    """The letter that byte-level tokenizers write for each byte, as GPT-2 chose them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = [], 256
    for byte in range(256):
        letters.append(chr(byte) if byte in plain else chr(extra))
        extra += byte not in plain
    return letters


def tokenizer() -> dict:
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {letter: byte for byte, letter in enumerate(byte_letters())}, "merges": []},
    }


def write_checkpoint(folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (folder / "model.safetensors").write_bytes(safetensors(seed))
    return folder
