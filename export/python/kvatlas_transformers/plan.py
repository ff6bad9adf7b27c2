# SPDX-License-Identifier: Apache-2.0
"""From a policy and what a prompt's prefill showed to what every KV head keeps of the prompt."""

from __future__ import annotations

from functools import cached_property

import torch

from . import selection
from .band import Band
from .parts import Part
from .policy import Policy

POD_ROWS = 16  # last prompt rows by which PoD compares layers


class Plan:
    """What a policy does to one prompt."""

    def __init__(self, policy: Policy):
        self.policy, self.shape = policy, policy.shape
        self.group = self.shape.heads // self.shape.kv_heads
        self.trims = policy.part("simlayerkv", "heads", "pyramid-layers", "random-layers")
        self.selects = policy.part("dynamickv", "lagkv", "streaming", "window", "snapkv", "pyramidkv", "h2o")
        self.lag = policy.part("lagkv")
        self.pod = policy.part("pod")
        self.delay = policy.decides_while_decoding
        self.prompt = 0  # tokens
        self.masses: list[torch.Tensor] = []  # [layer] of [heads]
        self.scores: list[torch.Tensor] = []  # [layer] of [heads, positions before the window]
        self.columns: list[torch.Tensor] = []  # [layer] of [KV heads, tokens]
        self.rows: list[torch.Tensor] = []  # [layer] of [heads, rows, tokens]

    @property
    def is_local(self) -> bool:
        """Whether a layer can be cut before the next one is prefilled."""
        counts_layers = self.trims is not None and (
            self.trims.settings.get("opposite") or self.trims.name.endswith("-layers")
        )
        finds_budgets = self._selects("dynamickv") and self.selects.budgets is None
        return not (self.delay or counts_layers or finds_budgets or self.pod and self.pod.lowest is None)

    def _selects(self, *names: str) -> bool:
        return self.selects is not None and self.selects.name in names

    # What the prefill shows.

    @property
    def rows_needed(self) -> int:
        """Last attention rows of every layer."""
        needed = [0]
        if self._by_prefill_mass:
            needed.append(self.trims["w_last"])
        if self._selects("dynamickv", "snapkv", "pyramidkv"):
            needed.append(self.selects["window"])
        if self.pod and self.pod.lowest is None:
            needed.append(POD_ROWS)
        return max(needed)

    @property
    def columns_needed(self) -> bool:
        return self._selects("h2o")

    @property
    def _by_prefill_mass(self) -> bool:
        return self.trims is not None and self.trims.settings.get("identify") == "prefill" and self.trims.lazy is None

    def observe(self, rows: torch.Tensor) -> None:
        """rows: [heads, rows, tokens], the last attention rows of the next layer of the prompt, as many as needed."""
        length = rows.shape[2]
        if self._by_prefill_mass:
            last = rows[:, -self.trims["w_last"] :]
            self.masses.append(selection.proximal_mass(last, *self.trims.keep).mean(1))
        if self._selects("dynamickv", "snapkv", "pyramidkv") and length > self.selects["window"]:
            last = rows[:, -self.selects["window"] :]
            self.scores.append(selection.window_scores(last, self.selects["kernel"], self.selects["pooling"]))
        if self.pod and self.pod.lowest is None:
            self.rows.append(rows[:, -POD_ROWS:].cpu())

    def observe_first_step(self, row: torch.Tensor) -> None:
        """row: [heads, 1, tokens], of the first token behind the prompt."""
        self.masses.append(selection.proximal_mass(row, *self.trims.keep).mean(1))

    # What follows from it.

    def layer_mass(self, layer: int) -> float:
        return float(self.masses[layer].mean())

    def _is_lazy(self, mass: float) -> bool:
        return self.trims["threshold"] < 1 and mass > self.trims["threshold"]

    @cached_property
    def _trimmed_layers(self) -> set[int]:
        """For parts that count layers."""
        trims, layers = self.trims, self.shape.layers
        lazy = [False] * layers
        if self.masses:
            lazy = [self._is_lazy(self.layer_mass(layer)) for layer in range(layers)]
        if trims.name == "simlayerkv":
            others = sorted((layer for layer in range(layers) if not lazy[layer]), key=self.layer_mass)
            return set(others[: sum(lazy)])
        count = sum(lazy) if trims["layers"] is None else trims["layers"]
        if trims.name == "pyramid-layers":
            return set(range(layers)[max(0, layers - count) :])
        half = {"lower": range(layers // 2), "upper": range(layers // 2, layers), "all": range(layers)}
        return set(selection.drawn_layers(trims["seed"], half[trims["from"]], count))

    def trimmed(self, layer: int) -> list[bool]:
        """[KV head]."""
        heads, trims = self.shape.kv_heads, self.trims
        if trims is None:
            return [False] * heads
        if trims.lazy is not None:
            row = trims.lazy[layer]
            return row * heads if len(row) == 1 else row
        if trims.name != "simlayerkv" or trims["opposite"]:
            return [layer in self._trimmed_layers] * heads
        if trims["granularity"] == "head":
            return [self._is_lazy(mass) for mass in self.masses[layer].view(heads, -1).mean(1).tolist()]
        return [self._is_lazy(self.layer_mass(layer))] * heads

    @cached_property
    def budgets(self) -> list[int] | None:
        """[layer], the window not counted; None where nothing is cut by them."""
        if not self._selects("dynamickv", "snapkv", "pyramidkv") or self.prompt <= self.selects["window"]:
            return None
        part: Part = self.selects
        positions, base = self.prompt - part["window"], part["budget"] - part["window"]
        if part.name == "snapkv":
            return [base] * self.shape.layers
        if part.name == "pyramidkv":
            return selection.pyramid_budgets(base, self.shape.layers)
        if part.budgets is not None:
            return [min(budget, positions) for budget in part.budgets]
        count = min(base, positions) * self.shape.heads * self.shape.layers
        return selection.layer_budgets(selection.top_counts(self.scores, count), self.shape.heads, base, positions)

    @cached_property
    def lowest(self) -> list[list[int]] | None:
        """[query head][layer], of PoD."""
        if self.pod is None or self.pod.lowest is not None:
            return self.pod and self.pod.lowest
        per_query_head = self.pod["granularity"] == "head"
        return selection.pod_blocks(self.rows, self.shape.kv_heads, per_query_head, self.pod["delta"])

    def sources(self, layer: int, kv_head: int) -> set[int]:
        """Layers by whose keys the query heads of a KV head score distant tokens."""
        if self.pod is None:
            return {layer}
        return {lowest[layer] for lowest in self.lowest[kv_head * self.group : (kv_head + 1) * self.group]}

    def cut_by_lag(self, layer: int, kv_head: int) -> bool:
        """Whether LagKV cuts the head; L2 does not cut the first two layers."""
        if self.lag is None or self.lag["variant"] == "l2" and layer < 2:
            return False
        return not self.trimmed(layer)[kv_head]

    def partitions(self, length: int) -> int:
        """How many of LagKV's are cut at that many tokens."""
        return max(0, (length - self.lag["sink"]) // self.lag["lag"] - 1)

    def kept(self, layer: int, band: Band) -> list[torch.Tensor]:
        """Of a layer's tokens, all of which `band` holds, those that each KV head keeps."""
        length = len(band.keys)
        trimmed = self.trimmed(layer)
        chosen = self._selected(layer, band, length) if not all(trimmed) else None
        window = selection.proximal(length, *self.trims.keep) if any(trimmed) else None
        everything = torch.arange(length)
        out = []
        for head, is_trimmed in enumerate(trimmed):
            out.append(window if is_trimmed else everything if chosen is None else chosen[head])
        return out

    def _selected(self, layer: int, band: Band, length: int) -> torch.Tensor | None:
        part, heads = self.selects, self.shape.kv_heads
        if part is None:
            return None
        if part.name in ("streaming", "window"):
            return selection.proximal(length, *part.keep).expand(heads, -1)
        if part.name == "h2o":
            best = part["budget"] // 2
            recent = max(0, length - (part["budget"] - best))
            return self._best_and_rest(self.columns[layer][:, : min(recent, self.prompt)], best, recent, length)
        if part.name == "lagkv":
            cut = self.partitions(length)
            if cut == 0 or not any(self.cut_by_lag(layer, head) for head in range(heads)):
                return None
            return band.kept_rows(part, 0, cut)
        if self.budgets is None:
            return None
        scores = self.scores[layer].view(heads, self.group, -1).mean(1)
        return self._best_and_rest(scores, self.budgets[layer], self.prompt - part["window"], length)

    @staticmethod
    def _best_and_rest(scores: torch.Tensor, best: int, begin: int, length: int) -> torch.Tensor:
        """The `best` largest of scores [heads, positions], ascending, then begin … length - 1."""
        chosen = selection.largest(scores, min(best, scores.shape[1])).cpu()
        return torch.cat([chosen, torch.arange(begin, length).expand(len(scores), -1)], dim=1)

    def decided(self) -> dict:
        """For reports: what the input decided."""
        out = {}
        if self.trims is not None and self.masses:
            out["mass"] = [self.layer_mass(layer) for layer in range(len(self.masses))]
        if self.trims is not None:
            lazy = [self.trimmed(layer) for layer in range(self.shape.layers)]
            out["lazy"] = [layer for layer, heads in enumerate(lazy) if all(heads)]
            out["lazy_heads"] = lazy
        if self.budgets is not None:
            out["budgets"] = self.budgets
        if self.pod is not None:
            out["lowest_layer"] = self.lowest
        return out

    def forget(self) -> None:
        """What the prefill showed is no longer needed."""
        self.scores, self.columns, self.rows = [], [], []
