# SPDX-License-Identifier: Apache-2.0
"""Writes the statistics that TriAttention reads: write_triattention_stats.py query_statistics.safetensors config.json OUT.pt

Needs the packages torch and safetensors. OUT.pt must not exist yet.
"""

import json
import os
import sys
from pathlib import Path

import torch
from safetensors import safe_open


def rope_type(config: dict) -> str:
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return scaling.get("rope_type") or scaling.get("type") or "default"


def statistics(path: Path, config: dict) -> dict:
    with safe_open(path, "pt") as file:
        mean, magnitude = file.get_tensor("query_mean"), file.get_tensor("query_magnitude")
        prompts = int(file.metadata()["prompts"])
    layers, heads, channels = mean.shape
    text = config.get("text_config", config)
    for key, found in (("num_hidden_layers", layers), ("num_attention_heads", heads)):
        if text.get(key, found) != found:
            sys.exit(f"config.json has {key} {text[key]}, and the statistics are of {found}")
    pairs = magnitude.shape[-1]
    stats = {
        f"layer{layer:02d}_head{head:02d}": {
            "q_mean_real": mean[layer, head, :pairs].clone(),
            "q_mean_imag": mean[layer, head, pairs : 2 * pairs].clone(),
            "q_abs_mean": magnitude[layer, head].clone(),
        }
        for layer in range(layers)
        for head in range(heads)
    }
    metadata = {
        "num_traces": prompts,
        "head_dim": channels,
        "dtype": "float32",
        "use_chat_template": False,
        "system_prompt": "",
        "prompt_template": "",
        "kv_budget": 0,
        "attn_implementation": "",
        "rope_style": "half",
        "rope_type": rope_type(text),
        "sampled_heads": [[layer, head] for layer in range(layers) for head in range(heads)],
    }
    return {"metadata": metadata, "stats": stats}


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, config, target = map(Path, sys.argv[1:])
    if target.exists():
        sys.exit(f"{target} exists")
    result = statistics(source, json.loads(config.read_text(encoding="utf-8")))
    unfinished = target.with_name(target.name + ".part")
    torch.save(result, unfinished)
    os.rename(unfinished, target)
    print(f"{target}: {len(result['stats'])} heads")


if __name__ == "__main__":
    main()
