# SPDX-License-Identifier: Apache-2.0
"""Builds the kvpress press that a kvatlas_press*.json describes.

    from load_press import load_press
    press = load_press("kvatlas_press_4096.json")
    with torch.no_grad(), press(model):
        model.generate(**inputs)
"""
import json
import os
import warnings

import numpy as np
from kvpress import (
    AdaKVPress,
    ChunkKVPress,
    CriticalKVPress,
    DecodingPress,
    DuoAttentionPress,
    ExpectedAttentionPress,
    KeyDiffPress,
    KVzipPress,
    LagKVPress,
    LUKVPress,
    PerLayerCompressionPress,
    SimLayerKVPress,
    SnapKVPress,
    StreamingLLMPress,
    TOVAPress,
)

PRESSES = {
    press.__name__: press
    for press in (
        AdaKVPress,
        ChunkKVPress,
        CriticalKVPress,
        DecodingPress,
        ExpectedAttentionPress,
        KeyDiffPress,
        KVzipPress,
        LagKVPress,
        LUKVPress,
        PerLayerCompressionPress,
        SimLayerKVPress,
        TOVAPress,
    )
}
SCORERS = {press.__name__: press for press in (KeyDiffPress, SnapKVPress, StreamingLLMPress, TOVAPress)}


def checked(kind, numbers: dict):
    """The press class, with a look at the model and at the length of each prompt."""
    layers, length = numbers["layers"], numbers.get("length")

    class CheckedPress(kind):
        def post_init_from_model(self, model):
            config = model.config.get_text_config()
            if config.num_hidden_layers != layers:
                raise ValueError(f"the press is for {layers} layers, the model has {config.num_hidden_layers}")
            heads = numbers.get("kv_heads", config.num_key_value_heads)
            if config.num_key_value_heads != heads:
                raise ValueError(f"the press is for {heads} KV heads, the model has {config.num_key_value_heads}")
            super().post_init_from_model(model)

        def forward_hook(self, module, input, kwargs, output):
            tokens = kwargs["hidden_states"].shape[1]
            prefill = int(kwargs["cache_position"][-1]) + 1 == tokens
            if kind is KVzipPress:  # which is called while the prompt is repeated, part by part
                tokens, prefill = self.context_length, self.start_idx == self.prefix_length
            if prefill and length is not None and tokens != length and module.layer_idx == 0:
                warnings.warn(
                    f"the prompt has {tokens} tokens, the ratios of the press are for {length}: "
                    "another number of tokens is kept than the policy says",
                    stacklevel=2,
                )
            return super().forward_hook(module, input, kwargs, output)

    CheckedPress.__name__ = kind.__name__
    return CheckedPress


def load_press(path: str):
    """The press of a kvatlas_press*.json. Its numbers, by the name of the press:

    those of PRESSES: their arguments, and where they take a press that scores, the scorer with its settings;
    LUKVPress: beside these head_ratios [layer][KV head], which stand in every row of its curves;
    DuoAttentionPress: retrieval_heads [layer][KV head] (1: kept whole), sink_size, recent_size.
    """
    with open(os.fspath(path), encoding="utf-8") as file:
        numbers = json.load(file)
    name, arguments = numbers["press"], dict(numbers["arguments"])
    if "scorer" in numbers:
        argument = "base_press" if name == "DecodingPress" else "press"
        arguments[argument] = SCORERS[numbers["scorer"]](**numbers.get("scorer_arguments", {}))
    if name in PRESSES:
        press = checked(PRESSES[name], numbers)(**arguments)
        if "head_ratios" in numbers:  # otherwise it would fetch curves for its own models
            press._budget_curves = np.tile(np.array(numbers["head_ratios"], dtype=np.float64), (99, 1, 1))
        return press
    if name != "DuoAttentionPress":
        raise ValueError(f"{path}: there is no press {name!r} here")

    heads = np.array(numbers["retrieval_heads"], dtype=float)

    class LocalPatternPress(checked(DuoAttentionPress, numbers)):
        @staticmethod
        def load_attention_pattern(model):
            return numbers["sink_size"], numbers["recent_size"], heads

    LocalPatternPress.__name__ = "DuoAttentionPress"
    return LocalPatternPress(**arguments)
