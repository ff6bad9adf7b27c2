# SPDX-License-Identifier: Apache-2.0
"""A whole model of random numbers, with a tokenizer of bytes: large enough for every command, and quick."""
import array
import json
import math
import random
from pathlib import Path

WRITTEN = frozenset("Ġabcdefghijklmnopqrstuvwxyz")
LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER = 16, 4, 2, 8, 32, 32
CHATML = ("{% for message in messages %}"
          "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def byte_alphabet() -> list[str]:
    """The characters that byte-level tokenizers write the 256 bytes as."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(256 + hidden.index(byte)) for byte in range(256)]


def tokenizer() -> dict:
    merges = [f"{first} {second}" for first in "Ġetaoinshr" for second in "etaoinshrd"]
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = byte_alphabet() + [merge.replace(" ", "") for merge in merges] + specials
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": words.index(text), "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True} for text in specials],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {word: number for number, word in enumerate(words)}, "merges": merges},
    }


def config(vocabulary: int, layers: int) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "float32",
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM, "hidden_size": HIDDEN, "intermediate_size": INNER, "vocab_size": vocabulary,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "tie_word_embeddings": False, "bos_token_id": vocabulary - 3, "eos_token_id": vocabulary - 3,
    }


def shapes(vocabulary: int, layers: int) -> dict[str, tuple[int, ...]]:
    """The tensors by transformers' names."""
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, HIDDEN),
                                       "model.norm.weight": (HIDDEN,), "lm_head.weight": (vocabulary, HIDDEN)}
    for layer in range(layers):
        name = f"model.layers.{layer}."
        out |= {
            name + "input_layernorm.weight": (HIDDEN,),
            name + "post_attention_layernorm.weight": (HIDDEN,),
            name + "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            name + "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            name + "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            name + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            name + "mlp.gate_proj.weight": (INNER, HIDDEN),
            name + "mlp.up_proj.weight": (INNER, HIDDEN),
            name + "mlp.down_proj.weight": (HIDDEN, INNER),
        }
    return out


def safetensors(seed: int, layers: int = LAYERS) -> bytes:
    words = list(tokenizer()["model"]["vocab"])
    draw = random.Random(seed)
    header, data = {}, array.array("f")
    for name, shape in shapes(len(words), layers).items():
        count, begin = math.prod(shape), len(data) * 4
        values = [1.0 if "norm" in name else draw.gauss(0, 0.3) for _ in range(count)]
        if name == "lm_head.weight":  # so that it writes letters and spaces, which the scores can compare
            values = [value if words[i // HIDDEN] in WRITTEN else 0.0 for i, value in enumerate(values)]
        data.extend(values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data) * 4]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data.tobytes()


def write(folder: Path, seed: int, layers: int = LAYERS) -> Path:
    """A Hugging Face folder; another one for another seed."""
    folder.mkdir(parents=True)
    words = tokenizer()
    (folder / "tokenizer.json").write_text(json.dumps(words))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    (folder / "config.json").write_text(json.dumps(config(len(words["model"]["vocab"]), layers)))
    (folder / "model.safetensors").write_bytes(safetensors(seed, layers))
    return folder
