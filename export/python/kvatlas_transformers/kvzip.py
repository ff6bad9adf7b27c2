# SPDX-License-Identifier: Apache-2.0
"""KVzip: what the model attends to most while it repeats the prompt stays, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import selection
from .band import Band
from .errors import PolicyError
from .planner import Planner
from .repeating import Repeating

_NAMED = 8  # tokens that say where a part begins
_MARK = "\n################"


@dataclass
class Reader:
    """What can have a prompt repeated: the model, and what it was asked in."""

    decoder: Any
    tokenizer: Any
    prompt: list[int] | None  # its tokens


@dataclass(frozen=True)
class Request:
    """The tokens that ask the model to repeat what it has read."""

    before_text: int  # tokens of the prompt before its text: they are not repeated
    all: list[int]  # to repeat it from the beginning
    part: list[int]  # or from the tokens on that are named behind this
    end: list[int]  # where the answer begins, behind either


def request_of(tokenizer: Any, prompt: Sequence[int]) -> Request:
    """As a user's message in the model's chat format, if the prompt begins as such messages do; else as bare text."""

    def encoded(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    before_text, end = 0, encoded("\n")
    if getattr(tokenizer, "chat_template", None):
        text = "the text"
        whole = tokenizer.apply_chat_template([{"role": "user", "content": text + _MARK}], tokenize=False, add_generation_prompt=True)
        if text not in whole or _MARK not in whole:
            raise PolicyError("kvzip: the chat template does not write a user's message as it is, so the model cannot be asked to repeat the prompt")
        before = encoded(whole[: whole.index(text)])
        same = next((i for i, both in enumerate(zip(prompt, before)) if both[0] != both[1]), min(len(prompt), len(before)))
        if same > 0 and len(before) - same <= 1:  # the last of them may be one with what follows
            before_text, end = min(len(before), len(prompt)), encoded(whole[whole.index(_MARK) + len(_MARK) :])
    return Request(
        before_text,
        encoded("\n\nRepeat the previous context exactly."),
        encoded("\n\nRepeat the part of the previous context exactly, starting with"),
        end,
    )


def parts_of(prompt: Sequence[int], request: Request, chunk: int) -> Iterator[tuple[range, list[int]]]:
    """The prompt's text in parts of `chunk` tokens, each with what is read behind the prompt to have it repeated."""
    for begin in range(request.before_text, len(prompt), chunk):
        part = range(begin, min(len(prompt), begin + chunk))
        first = begin == request.before_text
        named = [] if first else list(prompt[begin - min(_NAMED, chunk) : begin])
        yield part, [*(request.all if first else request.part), *named, *request.end, *prompt[begin : part.stop]]


class KvZip(Planner):
    is_local = False

    def __init__(self, part, shape):
        super().__init__(part, shape)
        self.scores: list[torch.Tensor] = []  # [layer] of [KV heads, tokens]: 0 for what is not repeated
        self.chosen: list[list[torch.Tensor]] = []  # [layer][KV head] the positions that stay, without later ones

    def repeat(self, reader: Reader | None, layers: list[Band]) -> None:
        """Scores the tokens of the prompt, of which `layers` hold all."""
        length = len(layers[0].keys)
        if length <= self.part["budget"]:
            return
        if reader is None or reader.tokenizer is None or reader.prompt is None:
            raise PolicyError("kvzip asks the model in words to repeat the prompt: pass tokenizer= and prompt=, its tokens, to cache(), anew for each prompt")
        prompt, reader.prompt = reader.prompt, None
        if len(prompt) != length:
            raise PolicyError(f"kvzip: the model has read {length} tokens, and the prompt that cache() was given has {len(prompt)}")
        self.scores = [torch.zeros(self.shape.kv_heads, length) for _ in layers]
        device = reader.decoder.get_input_embeddings().weight.device
        for part, words in parts_of(prompt, request_of(reader.tokenizer, prompt), self.part["chunk"]):
            behind = Repeating(layers, part, min(self.part["sink"], part.start))
            reader.decoder(input_ids=torch.tensor([words], device=device), past_key_values=behind, use_cache=True)
            for scores, greatest in zip(self.scores, behind.greatest):
                scores[:, part.start : part.stop] = greatest

    def selected(self, layer: int, band: Band) -> list[torch.Tensor] | None:
        if not self.scores:
            return None
        if not self.chosen:
            self._choose()
        behind = torch.arange(self.scores[layer].shape[1], len(band.keys))
        return [torch.cat([positions, behind]) for positions in self.chosen[layer]]

    def _choose(self) -> None:
        """The best of the heads of all layers, or of each layer, together."""
        together = 1 if self.part["layerwise"] else self.shape.layers
        nothing = torch.zeros(0, dtype=torch.long)
        self.chosen = [[nothing] * self.shape.kv_heads for _ in self.scores]
        for first in range(0, self.shape.layers, together):
            heads = [(layer, head) for layer in range(first, first + together) for head in range(self.shape.kv_heads) if not self.trimmed_of(layer)[head]]
            if not heads:
                continue
            scores = torch.stack([self.scores[layer][head] for layer, head in heads])
            scores[:, : self.part["sink"]] = torch.inf  # they are kept, as if they scored best
            counts = selection.counts_of_best(scores, self.part["budget"] * len(heads), 0)
            for (layer, head), row, count in zip(heads, scores, counts):
                self.chosen[layer][head] = selection.largest(row, count)

    def forget(self):
        self.scores, self.chosen = [], []
