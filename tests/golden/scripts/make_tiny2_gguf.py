# SPDX-License-Identifier: Apache-2.0
"""Converts the checkpoints of tiny2 to GGUF by llama.cpp's own converter.

python make_tiny2_gguf.py LLAMA_CPP TINY2 OUT_DIR [FAMILY...]

LLAMA_CPP is llama.cpp's source (the one in llama-cpp-python 0.3.36 was used). The checkpoints have no tokenizer, so a
list of words stands in for it. Their heads are wider than hidden size by heads, which the converter does not expect of
some families, and whose sizes are put right here. Expected values are those of tiny2, but for Llama 4, whose chunks and
temperatures GGUF cannot say: OUT_DIR/expected.h5 has what transformers computes with those of llama.cpp.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

LLAMA_CPP, TINY2, OUT = map(Path, sys.argv[1:4])
sys.path[:0] = [str(LLAMA_CPP / "gguf-py"), str(LLAMA_CPP)]

import gguf  # noqa: E402
from conversion import ModelBase, ModelType, get_model_architecture, get_model_class  # noqa: E402

# Families of which no file is made: a first layer without experts (Qwen3-MoE) and layers without RoPE in another step
# than llama.cpp's (SmolLM3) cannot be said in GGUF; Ministral is converted as Llama.
FAMILIES = [
    *("apertus", "arcee", "cohere2", "deepseek_v2", "deepseek_v3", "dots1", "ernie4_5", "ernie4_5_moe", "exaone4", "gemma3n_text"),
    *("gemma4_text", "glm4", "glm4_moe", "gpt_oss", "granite", "granitemoe", "granitemoehybrid", "hunyuan_v1_dense", "lfm2"),
    *("llama4_text", "minimax_m2", "mixtral", "nemotron", "olmo2", "olmo3", "olmoe", "phi", "phimoe", "qwen2_moe", "qwen3_next"),
    *("qwen3_5_text", "qwen3_5_moe_text", "seed_oss", "stablelm", "starcoder2"),
]
CLASS_NAMES = {"PhimoeForCausalLM": "PhiMoEForCausalLM"}


def set_vocab(model) -> None:
    writer, size = model.gguf_writer, model.hparams["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([f"<{i}>" for i in range(size)])
    writer.add_token_types([1] * size)
    writer.add_token_merges([])


# Families whose sizes the converter writes right.
RIGHT_SIZES = {"deepseek_v2", "deepseek_v3", "gemma4_text", "llama4_text"}
LAYER_TYPES = {"linear_attention": "mamba", "full_attention": "attention"}  # as Granite's converter calls them


def folder_with_tokenizer(folder: Path, size: int) -> tempfile.TemporaryDirectory:
    """The same checkpoint; Gemma's converter counts the words of its tokenizer."""
    copy = tempfile.TemporaryDirectory()
    shutil.copytree(folder, copy.name, dirs_exist_ok=True)
    words = {"model": {"vocab": {f"<{i}>": i for i in range(size)}}, "added_tokens": []}
    (Path(copy.name) / "tokenizer.json").write_text(json.dumps(words))
    return copy


def with_streams(model_class, hparams: dict):
    """Gemma 3n's converter, which expects four streams, for as many as there are."""
    count = hparams["altup_num_inputs"]

    class Streams(model_class):
        model_arch = model_class.model_arch

        def __init__(self, *args, **kwargs):
            hparams["altup_num_inputs"] = 4
            super().__init__(*args, **kwargs)
            self.hparams["altup_num_inputs"] = count
            self._altup_proj = self._altup_proj[: count - 1]
            self._altup_unembd = self._altup_unembd[: count - 1]

    return Streams


def expect_llama4() -> None:
    """What transformers computes of the checkpoint with the chunks and temperatures that llama.cpp takes it to have."""
    import h5py
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(TINY2 / "llama4_text", attention_chunk_size=8192, floor_scale=8192, attn_scale=0.1)
    model = AutoModelForCausalLM.from_pretrained(
        TINY2 / "llama4_text", config=config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with h5py.File(TINY2 / "expected.h5") as file:
        tokens = torch.from_numpy(file["llama4_text/tokens"][:])
    with torch.inference_mode():
        out = model(tokens[None], use_cache=False, output_attentions=True)
    with h5py.File(OUT / "expected.h5", "w") as file:
        group = file.create_group("llama4_text")
        group["tokens"] = tokens.numpy()
        group["logits"] = out.logits[0, -32:].numpy()
        group["attention_last16"] = torch.stack([layer[0, :, -16:] for layer in out.attentions]).numpy()


def convert(family: str) -> None:
    hparams = ModelBase.load_hparams(TINY2 / family, False)
    config = json.loads((TINY2 / family / "config.json").read_text())
    hparams.setdefault("original_max_position_embeddings", hparams["max_position_embeddings"])
    rotary = config["rope_parameters"].get("partial_rotary_factor", 1.0)
    hparams.setdefault("rotary_pct", rotary)
    name = get_model_architecture(hparams, ModelType.TEXT)
    model_class = get_model_class(CLASS_NAMES.get(name, name))
    model_class.set_vocab = set_vocab
    model_class.no_mtp = True
    if family == "deepseek_v3":
        hparams["scoring_func"] = "sigmoid"  # which its configuration class leaves unsaid
    if family == "gemma3n_text":
        model_class = with_streams(model_class, hparams)
    if family == "granitemoehybrid":
        hparams["layer_types"] = [LAYER_TYPES[kind] for kind in hparams["layer_types"]]
    set_parameters = model_class.set_gguf_parameters

    def set_all_parameters(self) -> None:
        set_parameters(self)
        keys, head, arch = self.gguf_writer.kv_data[0], config["head_dim"], self.gguf_writer.arch
        number = gguf.gguf_writer.GGUFValue
        if family == "granitemoehybrid":  # the converter takes it that such a model has no RoPE
            keys[f"{arch}.rope.scaling.finetuned"] = number(True, gguf.GGUFValueType.BOOL)
        if family in RIGHT_SIZES:
            return
        for key, value in {
            "attention.key_length": head,
            "attention.value_length": head,
            "attention.head_count_kv": config["num_key_value_heads"],
            "feed_forward_length": config["intermediate_size"],
            "rope.dimension_count": int(head * rotary),
        }.items():
            written = keys.get(f"{arch}.{key}")
            if written is None or written.type != gguf.GGUFValueType.ARRAY:
                keys[f"{arch}.{key}"] = number(value, gguf.GGUFValueType.UINT32)

    model_class.set_gguf_parameters = set_all_parameters
    out = OUT / f"{family}.gguf"
    kind = gguf.LlamaFileType.MOSTLY_BF16 if config["dtype"] == "bfloat16" else gguf.LlamaFileType.ALL_F32
    with folder_with_tokenizer(TINY2 / family, config["vocab_size"]) as folder:
        model_class(Path(folder), kind, out, eager=True, model_name=family, hparams=hparams).write()
    if family == "llama4_text":
        expect_llama4()


for family in sys.argv[4:] or FAMILIES:
    convert(family)
