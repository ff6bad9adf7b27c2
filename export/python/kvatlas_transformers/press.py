# SPDX-License-Identifier: Apache-2.0
"""The scores of a kvpress press as a method of one's own (Policy.scored)."""

from __future__ import annotations

from typing import Any

import torch

from .errors import PolicyError


def is_press(scorer: Any) -> bool:
    """Whether it is one of kvpress's that score tokens. A press can be called too, and means something else by it."""
    return hasattr(scorer, "score") and hasattr(scorer, "post_init_from_model")


class PressScores:
    """Within `with`, hooks tell the press what each layer is given. Its ratio is set to what the budget leaves."""

    def __init__(self, press: Any, model: torch.nn.Module, budget: int):
        self.press, self.model, self.budget = press, model, budget
        self._undo: list[Any] = []

    def __enter__(self) -> PressScores:
        self.press.post_init_from_model(self.model)
        decoder = self.model.get_decoder()
        for layer in decoder.layers:
            module = layer.self_attn
            self._undo.append(module.register_forward_pre_hook(self._remember, with_kwargs=True).remove)
            if not hasattr(module, "rotary_emb"):  # where presses look for it
                module.rotary_emb = decoder.rotary_emb
                self._undo.append(lambda module=module: delattr(module, "rotary_emb"))
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()

    def _remember(self, module: torch.nn.Module, _: Any, given: dict[str, Any]) -> None:
        self._now = module, given

    def __call__(self, keys, values, queries, positions, layer: int) -> torch.Tensor:
        module, given = self._now
        if module.layer_idx != layer:
            raise PolicyError(f"layer {layer} attends while layer {module.layer_idx} runs")
        self.press.compression_ratio = 1 - (self.budget + 0.5) / keys.shape[1]  # which rounds to the budget
        return self.press.score(module, given["hidden_states"], keys[None], values[None], None, given)[0]
