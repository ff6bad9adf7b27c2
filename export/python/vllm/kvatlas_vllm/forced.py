# SPDX-License-Identifier: Apache-2.0
"""Answers of given tokens: a request whose vllm_xargs hold "kvatlas_forced", a list of token ids, generates these, one
after the other. The log-probabilities that come back are those from before ("raw", vLLM's default), so they say how
probable the cut cache makes each token of an answer that the full cache gave. `kvatlas check --force-decode` asks so."""

from __future__ import annotations

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

ARGUMENT = "kvatlas_forced"


def forced_tokens(sampling_params) -> list[int]:
    return (sampling_params.extra_args or {}).get(ARGUMENT) or []


class ForcedTokens(LogitsProcessor):
    @classmethod
    def validate_params(cls, sampling_params) -> None:
        tokens = forced_tokens(sampling_params)
        if not isinstance(tokens, list) or any(type(token) is not int or token < 0 for token in tokens):
            raise ValueError(f"{ARGUMENT} is no list of token ids")

    def __init__(self, vllm_config, device: torch.device, is_pin_memory: bool) -> None:
        self.vocabulary = vllm_config.model_config.get_vocab_size()
        self.rows: dict[int, tuple[list[int], list[int]]] = {}  # the tokens of a row, and what it has generated

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.rows.pop(row, None)
        for row, sampling_params, _, generated in batch_update.added:
            self.rows.pop(row, None)
            if tokens := forced_tokens(sampling_params):
                self.rows[row] = (tokens, generated)
        for first, second, direction in batch_update.moved:
            here, there = self.rows.pop(first, None), self.rows.pop(second, None)
            if here is not None:
                self.rows[second] = here
            if there is not None and direction == MoveDirectionality.SWAP:
                self.rows[first] = there

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (tokens, generated) in self.rows.items():
            if len(generated) < len(tokens) and tokens[len(generated)] < self.vocabulary:
                token = tokens[len(generated)]
                kept = logits[row, token].clone()
                logits[row] = float("-inf")
                logits[row, token] = kept
        return logits
