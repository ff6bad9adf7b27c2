# SPDX-License-Identifier: Apache-2.0
"""Converts the checkpoints of tiny2 to GGUF by llama.cpp's own converter.

python make_tiny2_gguf.py LLAMA_CPP TINY2 OUT_DIR [FAMILY...]

LLAMA_CPP is llama.cpp's source (the one in llama-cpp-python 0.3.36 was used). The checkpoints have no tokenizer, so a
list of words stands in for it. Their heads are wider than hidden size by heads, which the converter does not expect of
some families, and whose sizes are put right here. Expected values are those of tiny2.
"""

import json
import sys
from pathlib import Path

LLAMA_CPP, TINY2, OUT = map(Path, sys.argv[1:4])
sys.path[:0] = [str(LLAMA_CPP / "gguf-py"), str(LLAMA_CPP)]

import gguf  # noqa: E402
from conversion import ModelBase, ModelType, get_model_architecture, get_model_class  # noqa: E402

# Families of which no file is made: a first layer without experts, and layers without RoPE in
# another step than llama.cpp's, cannot be said in GGUF; xIELU's numbers are keys, which kvatlas does not read.
FAMILIES = [
    *("arcee", "cohere2", "dots1", "ernie4_5", "ernie4_5_moe", "exaone4", "glm4", "glm4_moe", "gpt_oss"),
    *("granite", "granitemoe", "hunyuan_v1_dense", "minimax_m2", "mixtral", "nemotron", "olmo2", "olmo3", "olmoe", "phi"),
    *("phimoe", "qwen2_moe", "seed_oss", "stablelm", "starcoder2"),
]
CLASS_NAMES = {"PhimoeForCausalLM": "PhiMoEForCausalLM"}


def set_vocab(model) -> None:
    writer, size = model.gguf_writer, model.hparams["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([f"<{i}>" for i in range(size)])
    writer.add_token_types([1] * size)
    writer.add_token_merges([])


def convert(family: str) -> None:
    hparams = ModelBase.load_hparams(TINY2 / family, False)
    config = json.loads((TINY2 / family / "config.json").read_text())
    hparams.setdefault("original_max_position_embeddings", hparams["max_position_embeddings"])
    rotary = config["rope_parameters"].get("partial_rotary_factor", 1.0)
    hparams.setdefault("rotary_pct", rotary)
    name = get_model_architecture(hparams, ModelType.TEXT)
    model_class = get_model_class(CLASS_NAMES.get(name, name))
    model_class.set_vocab = set_vocab
    set_parameters = model_class.set_gguf_parameters

    def set_all_parameters(self) -> None:
        set_parameters(self)
        keys, head = self.gguf_writer.kv_data[0], config["head_dim"]
        number = gguf.gguf_writer.GGUFValue
        for key, value in {
            "attention.key_length": head,
            "attention.value_length": head,
            "attention.head_count_kv": config["num_key_value_heads"],
            "feed_forward_length": config["intermediate_size"],
            "rope.dimension_count": int(head * rotary),
        }.items():
            keys[f"{self.gguf_writer.arch}.{key}"] = number(value, gguf.GGUFValueType.UINT32)

    model_class.set_gguf_parameters = set_all_parameters
    out = OUT / f"{family}.gguf"
    kind = gguf.LlamaFileType.MOSTLY_BF16 if config["dtype"] == "bfloat16" else gguf.LlamaFileType.ALL_F32
    model_class(TINY2 / family, kind, out, eager=True, hparams=hparams).write()


for family in sys.argv[4:] or FAMILIES:
    convert(family)
