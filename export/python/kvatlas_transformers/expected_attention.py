# SPDX-License-Identifier: Apache-2.0
"""ExpectedAttention: the attention that a token would take from queries behind the prompt, if these were spread as the
prompt's own."""

from __future__ import annotations

import inspect
import sys

import torch

from .best_scored import BestScored
from .errors import PolicyError
from .planner import Seen


class ExpectedAttention(BestScored):
    def look(self, layer, seen):
        part, tokens = self.part, seen.key.shape[1]
        if tokens <= part["budget"]:
            return
        sink, scaling = part["sink"], seen.scaling
        mean, covariance = self._turned_spread(layer, seen, tokens)
        keys = seen.key[:, sink:].float()
        shape = self.shape.kv_heads, self.shape.group
        logits = mean.view(*shape, -1) @ keys.transpose(1, 2) * scaling
        if part["covariance"]:
            columns = keys.transpose(1, 2)[:, None]  # [KV heads, 1, channels, tokens]
            turned = covariance.view(*shape, *covariance.shape[1:])
            logits += (columns * (turned @ columns)).sum(2) * (scaling**2 / 2)
        scores = torch.softmax(logits, dim=-1).mean(1)
        if part["values"]:
            scores = (scores + part["epsilon"]) * seen.value[:, sink:].float().norm(dim=-1)
        self.scores.append(torch.nn.functional.pad(scores, (sink, 0), value=torch.inf))

    def _turned_spread(self, layer: int, seen: Seen, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean [heads, channels] and the covariance [heads, channels, channels] of the prompt's queries before RoPE,
        turned to the places behind it."""
        turn = getattr(sys.modules[type(seen.module).__module__], "apply_rotary_pos_emb", None)
        if seen.rotary is None or turn is None:
            raise PolicyError(f"expected-attention: {type(seen.module).__name__} does not say how it turns queries to their places")
        of_kind = {}
        if "layer_type" in inspect.signature(seen.rotary.forward).parameters:
            of_kind["layer_type"] = seen.module.config.layer_types[layer]
        places = torch.arange(tokens + self.part["future"], device=seen.query.device)[None]
        cos, sin = seen.rotary(seen.query[None].float(), places, **of_kind)

        def turned(rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
            return turn(rows[None], rows[None], cos, sin)[0][0]

        own = slice(self.part["sink"], tokens)
        square = (cos[:, :1] ** 2 + sin[:, :1] ** 2)  # of what RoPE stretches rows by, beside turning them
        rows = turned(seen.query[:, own].float(), cos[:, own] / square, -sin[:, own] / square)
        mean = rows.mean(1, keepdim=True)
        apart = rows - mean
        covariance = apart.transpose(1, 2) @ apart / apart.shape[1]
        behind = cos[:, tokens:].mean(1, keepdim=True), sin[:, tokens:].mean(1, keepdim=True)
        for _ in range(2):  # the rows, and the columns
            covariance = turned(covariance, *behind).transpose(1, 2)
        return turned(mean, *behind)[:, 0], covariance
