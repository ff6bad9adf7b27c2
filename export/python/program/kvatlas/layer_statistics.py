# SPDX-License-Identifier: Apache-2.0
"""The statistics of one sample, in torch, taken where the layers are while a model runs. What they are called and which
settings they have comes from `kvatlas profile --describe`; docs/profiling.md says what they mean, and the kernels of the
program (kernels/*_ref.cpp) are their specification."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

_TYPES = {"float32": np.float32, "float16": np.float16, "int32": np.int32, "int64": np.int64, "uint8": np.uint8}
_LEAST = 2.0**-126  # shares below it are stored as none
_LEAST_OF_ROWS = 2.0**-24  # in last rows that are only looked at
_ROWS_A_BLOCK = 256  # of a map
_AT_ONCE = 1 << 17  # numbers of all layers that are compared at a time


@contextmanager
def exact_products() -> Iterator[None]:
    """Without the short float32 products that some users switch on for their model."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def in_double(values: torch.Tensor) -> torch.Tensor:
    return values if values.device.type == "mps" else values.double()


@dataclass
class Attended:
    """What one layer's attention works on, for one sequence: the queries are those of the last of all tokens."""

    query: torch.Tensor  # [heads, rows, channels]
    key: torch.Tensor  # [KV heads, tokens, channels]
    value: torch.Tensor
    scale: float
    softcap: float = 0.0
    window: int = 0  # where no mask is given
    sinks: torch.Tensor | None = None  # [heads]
    mask: torch.Tensor | None = None  # [1 or heads, rows, tokens]: bool, or added to the scores
    causal: bool = True

    @property
    def before(self) -> int:
        """Tokens before the first query's."""
        return self.key.shape[1] - self.query.shape[1]

    def scores(self, first: int, last: int, sees: int | None = None) -> torch.Tensor:
        """Those of rows [first, last), [heads, rows, keys] in float32; -inf where a key is not seen. `sees`: only so
        many keys are looked at, which must be all that the rows see."""
        heads, channels = self.query.shape[0], self.query.shape[2]
        kv_heads, tokens = self.key.shape[:2]
        sees = tokens if sees is None else sees
        rows = (self.query[:, first:last].float() * self.scale).reshape(kv_heads, -1, channels)
        scores = (rows @ self.key[:, :sees].float().transpose(1, 2)).view(heads, last - first, sees)
        if self.softcap:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if self.mask is not None:
            mask = self.mask[:, first:last, :sees]
            if mask.dtype == torch.bool:
                return scores.masked_fill_(~mask, -math.inf)
            return (scores + mask).masked_fill_(mask <= torch.finfo(mask.dtype).min / 2, -math.inf)
        if self.causal and (last - first > 1 or self.window):
            key = torch.arange(sees, device=scores.device)
            row = torch.arange(self.before + first, self.before + last, device=scores.device)[:, None]
            hidden = key > row
            if self.window:
                hidden |= key <= row - self.window
            scores.masked_fill_(hidden, -math.inf)
        return scores

    def weights(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """exp(score - top), the same of the sink (0 without one), and top: [heads, rows, …]."""
        top = scores.amax(-1, keepdim=True)
        if self.sinks is None:
            return torch.exp(scores - top), torch.zeros_like(top), top
        sinks = self.sinks.float().view(-1, 1, 1)
        top = torch.maximum(top, sinks)
        return torch.exp(scores - top), torch.exp(sinks - top), top


def code_of(logs: torch.Tensor, codes: dict[str, float]) -> torch.Tensor:
    """Logarithms of shares as a byte each."""
    place = torch.round(logs / codes["scale_factor"] + codes["one"]).clamp_(0, codes["one"])
    return torch.where(torch.isnan(logs), float(codes["unknown"]), place).to(torch.uint8)


def window_scores(rows: torch.Tensor, kind: dict[str, Any], groups: int) -> torch.Tensor:
    """Of the tokens before the window by its rows, the last of [heads, rows, tokens]: [groups, positions]."""
    window, kernel = kind["window"], kind["kernel"]
    means = rows[:, rows.shape[1] - window :, : rows.shape[2] - window].mean(1).unsqueeze(0)
    if kind["pooling"] == "avg":
        pooled = F.avg_pool1d(means, kernel, 1, kernel // 2, count_include_pad=True)
    else:
        pooled = F.max_pool1d(means, kernel, 1, kernel // 2)
    return pooled[0].view(groups, -1, pooled.shape[-1]).mean(1)


def ordered(scores: torch.Tensor) -> torch.Tensor:
    """Places by score along the last axis, the largest first, of equal ones the earlier first."""
    return torch.sort(scores, dim=-1, descending=True, stable=True).indices


def share_out(counts: list[int], total: int, cap: int) -> list[int]:
    """DynamicKV's budgets of layers: `total` tokens in the proportion of their counts, none more than the cap."""
    budgets, below = [cap] * len(counts), list(range(len(counts)))
    while True:
        weights = [counts[layer] for layer in below]
        if not sum(weights):
            weights = [1] * len(below)
        whole = sum(weights)
        keeps = [total * weight <= cap * whole for weight in weights]
        if all(keeps):
            break
        total -= cap * keeps.count(False)
        below = [layer for layer, kept in zip(below, keeps) if kept]
    for layer, weight in zip(below, weights):
        budgets[layer] = total * weight // whole
    left = total - sum(budgets[layer] for layer in below)
    for i in sorted(range(len(below)), key=lambda i: -(total * weights[i] % whole))[: max(0, left)]:
        budgets[below[i]] += 1
    return budgets


class LagScores:
    """LagKV's scores of the partitions of one layer, for every lag and variant from one look at keys and values.

    A partition's scores are softmax(s) with s the standard deviation over channels of (x - least) / (greatest - least),
    channel by channel, of the partition itself or of the next one. Here x is written as its place y in a short base
    partition, about its middle, so that for all lags and variants the sums over channels of the normalised values and of
    their squares are products of y and y squared with few columns each, in which nothing large cancels."""

    def __init__(self, sink: int, lags: list[int], tokens: int):
        self.sink, self.lags = sink, [lag for lag in lags if tokens >= sink + 2 * lag]
        self.base = math.gcd(*self.lags) if self.lags else 0
        self.cut = {lag: (tokens - sink) // lag - 1 for lag in self.lags}

    def of(self, values: torch.Tensor) -> dict[tuple[str, int], torch.Tensor]:
        """Of keys or values [heads, tokens, channels]: by variant and lag, [heads, partitions, lag]."""
        heads, tokens, channels = values.shape
        whole = (tokens - self.sink) // self.base
        rows = values[:, self.sink : self.sink + whole * self.base].float().view(heads, whole, self.base, channels)
        least, most = torch.aminmax(rows, dim=2)  # [heads, base partitions, channels]
        middle = (least + most) / 2
        y = rows - middle.unsqueeze(2)
        linear, square, about = [], [], []
        for lag in self.lags:
            count, step = self.cut[lag], lag // self.base
            low = least[:, : (count + 1) * step].view(heads, count + 1, step, channels).amin(2)
            high = most[:, : (count + 1) * step].view(heads, count + 1, step, channels).amax(2)
            for variant in ("lag", "local"):
                taken = slice(1, None) if variant == "lag" else slice(0, count)
                extent = (high - low)[:, taken]
                flat = extent < _LEAST
                weight = torch.where(flat, 0.0, 1 / torch.where(flat, 1.0, extent)).repeat_interleave(step, 1)
                shift = middle[:, : count * step] - ((low + high) / 2)[:, taken].repeat_interleave(step, 1)
                none = flat.sum(-1).repeat_interleave(step, 1)  # channels that count as 0, which is half below the middle
                columns, squares = torch.stack([weight, 2 * shift * weight**2], -1), (weight**2).unsqueeze(-1)
                pad = (whole - count * step,)
                linear.append(F.pad(columns, (0, 0, 0, 0, 0, *pad)))
                square.append(F.pad(squares, (0, 0, 0, 0, 0, *pad)))
                about.append((lag, variant, shift * weight, none))
        by_y = y @ torch.cat(linear, -1)  # [heads, base partitions, base, 2 a lag and variant]
        by_square = y.square_() @ torch.cat(square, -1)
        out = {}
        for i, (lag, variant, moved, none) in enumerate(about):
            parts = moved.shape[1]
            first = by_y[:, :parts, :, 2 * i] + (moved.sum(-1) - none / 2).unsqueeze(-1)
            second = by_square[:, :parts, :, i] + by_y[:, :parts, :, 2 * i + 1]
            second = second + (moved.square().sum(-1) + none / 4).unsqueeze(-1)
            spread = ((second - first.square() / channels) / (channels - 1)).clamp_min_(0).sqrt()
            out[variant, lag] = torch.softmax(spread.reshape(heads, -1, lag), -1)
        return out


class SampleStatistics:
    """Takes what `description` (of `kvatlas profile --describe`) lists of one prompt, as the model runs over it."""

    def __init__(self, description: dict[str, Any], shape: dict[str, int], tokens: int, with_maps: bool):
        self.described = {array["name"]: array for array in description["arrays"] + description["texts"]}
        self.numbers, self.codes = description["numbers"], description["codes"]
        self.parts = set(description["capture"]["capture"])
        self.exact_maps = description["capture"]["map_type"] != "uint8"
        self.layers, self.heads, self.kv_heads = (shape[name] for name in ("layers", "heads", "kv_heads"))
        self.tokens, self.with_maps = tokens, with_maps
        self.arrays: dict[str, np.ndarray] = {}
        self.held = [torch.empty(0)] * self.layers  # last rows, [heads, rows, tokens]
        self.columns: list[torch.Tensor | None] = [None] * self.layers
        self.budgets: list[list[list[int]]] = []  # DynamicKV's, by window kind and budget

    # ---- where results go

    def array(self, name: str, *sizes: int) -> np.ndarray:
        if name not in self.arrays:
            described = self.described[name]
            kind = _TYPES[described["type"]]
            fill = math.nan if described["type"] == "float32" else 0 if kind in (np.uint8, np.float16) else -1
            self.arrays[name] = np.full(described["sizes"] or sizes, fill, kind)
        return self.arrays[name]

    def store_log2(self, name: str, layer: int, shares: torch.Tensor, least: float = _LEAST) -> None:
        logs = torch.log2(shares)
        logs = torch.where(shares < least, -math.inf, logs)
        kind = self.described[name]["type"]
        stored = code_of(logs, self.codes) if kind == "uint8" else logs.half() if kind == "float16" else logs
        self.array(name, self.layers, *shares.shape)[layer] = stored.cpu().numpy()

    def to_look_at(self, values: torch.Tensor) -> np.ndarray:
        return (values.float() if self.exact_maps else values.bfloat16().float()).cpu().numpy()

    # ---- a layer of the prompt

    def prefill(self, layer: int, given: Attended) -> None:
        with exact_products():
            if self.numbers["last_rows"] > 0:
                self.add_rows(layer, given)
            if "norms" in self.parts:
                self.add_norms(layer, given)
            if self.with_maps and self.parts & {"maps", "columns"}:
                self.add_maps(layer, given)

    def masses(self, given: Attended, first: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the rows from `first` on: their probabilities, and mass, proximal and distant log-sum-exp,
        [3, proximity, heads, rows]."""
        weights, sink, top = given.weights(given.scores(first, given.query.shape[1]))
        rows, tokens = weights.shape[1:]
        ragged_row, shift = torch.arange(rows, device=weights.device)[:, None], top[..., 0]
        # Row r's distant keys of a proximity are those from `initial` on that lie before begin + r.
        ranges = []  # of each: initial, begin, and the columns in which rows differ
        for initial, recent in self.numbers["proximities"] if "lazy" in self.parts else ():
            begin, initial = tokens - rows + 1 - recent, min(initial, tokens)
            ranges.append((initial, begin, max(begin, initial), max(begin + rows, initial)))
        bounds = sorted({0, tokens, *(min(bound, tokens) for initial, _, start, end in ranges for bound in (initial, start, end))})
        pieces = [weights[..., low:high].sum(-1) for low, high in zip(bounds, bounds[1:])]
        found = []
        for initial, begin, start, end in ranges:
            ragged = weights[..., start:end]
            is_distant = torch.arange(start, start + ragged.shape[2], device=weights.device) < begin + ragged_row
            distant, near = (ragged * is_distant).sum(-1), (ragged * ~is_distant).sum(-1) + sink[..., 0]
            for low, piece in zip(bounds, pieces):
                if initial <= low < start:
                    distant = distant + piece
                elif low < initial or low >= end:
                    near = near + piece
            found.append(torch.stack([near / (near + distant), torch.log(near) + shift, torch.log(distant) + shift]))
        weights /= weights.sum(-1, keepdim=True) + sink
        return weights, torch.stack(found, 1) if found else weights.new_empty(3, 0)

    def add_rows(self, layer: int, given: Attended) -> None:
        rows = min(self.numbers["last_rows"], self.tokens)
        shares, found = self.masses(given, self.tokens - rows)
        held = min(self.numbers["held_rows"], rows)
        if held:
            self.held[layer] = shares[:, rows - held :].clone()
            if self.with_maps and "maps" in self.parts:
                shown = shares[:, rows - min(self.numbers["js_rows"], held) :]
                self.store_log2("rows/attention", layer, shown, _LEAST if self.exact_maps else _LEAST_OF_ROWS)
        if "lazy" in self.parts:
            taken = min(self.numbers["mass_rows"], rows)
            values = found[..., rows - taken :].cpu().numpy()
            for name, one in zip(("proximal_mass", "proximal_lse", "distant_lse"), values):
                self.array(f"lazy/{name}")[:, layer, :, -taken:] = one

    def add_norms(self, layer: int, given: Attended) -> None:
        for what, values in (("key", given.key), ("value", given.value)):
            norms = torch.linalg.vector_norm(values.float(), dim=2)
            precise = in_double(norms)
            spread = (precise - precise.mean(1, keepdim=True)).square().mean(1).sqrt()
            of_heads = torch.stack([norms.amin(1), precise.mean(1).float(), spread.float(), norms.amax(1)], 1)
            self.array(f"norms/{what}")[layer] = of_heads.cpu().numpy()
            least, most = torch.aminmax(values.float(), dim=1)
            self.array(f"norms/{what}_range")[:, layer] = torch.stack([least, most]).cpu().numpy()
            if self.with_maps and "maps" in self.parts:
                self.array(f"norms/{what}_of_token", self.layers, self.kv_heads, self.tokens)[layer] = self.to_look_at(norms)

    def add_maps(self, layer: int, given: Attended) -> None:
        n, wants_maps = self.tokens, "maps" in self.parts
        block = 1
        while -(-n // block) > self.numbers["map_blocks"]:
            block *= 2
        side = -(-n // block)
        columns = torch.zeros(self.heads, n, device=given.query.device)
        sums = torch.zeros(self.heads, side, side, device=given.query.device)
        maxima = torch.zeros_like(sums)
        step = max(block, _ROWS_A_BLOCK)
        for first in range(0, n, step):
            last = min(first + step, n)
            sees = last if given.causal else n
            weights, sink, _ = given.weights(given.scores(first, last, sees))
            weights /= weights.sum(-1, keepdim=True) + sink
            columns[:, :sees] += weights.sum(1)
            if not wants_maps:
                continue
            blocks, across = -(-(last - first) // block), -(-sees // block)
            weights = F.pad(weights, (0, across * block - sees, 0, blocks * block - (last - first)))
            cells = weights.view(self.heads, blocks, block, across * block)
            place = (slice(None), slice(first // block, first // block + blocks), slice(0, across))
            sums[place] = cells.sum(2).view(self.heads, blocks, across, block).sum(3)
            maxima[place] = cells.amax(2).view(self.heads, blocks, across, block).amax(3)
        if wants_maps:
            self.store_levels(layer, block, sums, maxima)
        if "columns" in self.parts:
            self.columns[layer] = columns
            self.array("columns/sums", self.layers, self.heads, n)[layer] = self.to_look_at(columns)

    def store_levels(self, layer: int, block: int, sums: torch.Tensor, maxima: torch.Tensor) -> None:
        blocks: list[int] = []
        while len(blocks) < self.numbers["map_levels"]:
            side = sums.shape[1]
            covered = torch.full((side,), float(block), device=sums.device)
            covered[-1] = self.tokens - (side - 1) * block
            level = len(blocks)
            self.store_log2(f"map/mean/{level}", layer, sums / (covered[:, None] * covered))
            self.store_log2(f"map/max/{level}", layer, maxima)
            blocks.append(block)
            if side == 1:
                break
            odd = side % 2
            pooled = [F.pad(values, (0, odd, 0, odd)).view(self.heads, (side + 1) // 2, 2, (side + 1) // 2, 2) for values in (sums, maxima)]
            sums, maxima, block = pooled[0].sum((2, 4)), pooled[1].amax((2, 4)), 2 * block
        self.array("map/block_tokens", len(blocks))[:] = blocks

    # ---- when all layers of the prompt have run

    def end_prefill(self, logits: torch.Tensor) -> None:
        """logits: of the next token, [vocabulary]."""
        self.held = [held.to(self.held[0].device) for held in self.held]
        with exact_products():
            if "js" in self.parts:
                self.add_divergence()
            if self.parts & {"scores", "kept"}:
                self.add_scores()
            if "next" in self.parts:
                self.add_next(logits)

    def add_divergence(self) -> None:
        rows = min(self.numbers["js_rows"], self.tokens)
        out = self.array("js/divergence")
        for head in range(self.heads):
            shares = torch.stack([held[head, -rows:] for held in self.held])  # [layer, rows, tokens]
            sums = in_double(shares.new_zeros(rows, self.layers, self.layers))
            width = min(self.tokens, max(64, _AT_ONCE // self.layers))  # what stays in a processor's cache
            height = max(1, _AT_ONCE // (self.layers * width))
            for start in range(0, self.tokens, width):
                for row in range(0, rows, height):
                    part = shares[:, row : row + height, start : start + width]
                    for a in range(self.layers):
                        both = part[a:] + part[a]
                        sums[row : row + height, a, a:] += torch.linalg.vecdot(both, torch.log2(both + _LEAST)).T
            # With m the mean of p and q: H(m) = 1 - 1/2 sum (p + q) log2(p + q) where p and q sum to 1.
            totals = in_double(shares).sum(-1).T  # [rows, layers]: 1, or less where there are sinks
            own = (torch.diagonal(sums, dim1=1, dim2=2) - 2 * totals) / 2  # sum p log2 p
            middle = -(sums - (totals[:, :, None] + totals[:, None])) / 2
            divergence = (middle + (own[:, :, None] + own[:, None]) / 2).clamp_(0, 1).mean(0)
            upper = torch.triu(divergence, 1)
            out[head] = (upper + upper.T).float().cpu().numpy()

    def add_scores(self) -> None:
        layers, heads = self.layers, self.heads
        self.budgets = []
        for number, kind in enumerate(self.numbers["window_kinds"]):
            positions = self.tokens - kind["window"]
            self.budgets.append([])
            if positions < 1:
                continue

            def counted(groups: int, most: list[int]) -> np.ndarray:
                scores = torch.stack([window_scores(held, kind, groups) for held in self.held])
                order = ordered(scores.view(-1))[: max(most)].div_(groups * positions, rounding_mode="floor")
                return np.stack([torch.bincount(order[:count], minlength=layers).cpu().numpy() for count in most])

            counts = counted(heads, [min(budget - kind["window"], positions) * heads * layers for budget in self.numbers["budgets"]])
            for of_budget, budget in zip(counts, self.numbers["budgets"]):
                base = budget - kind["window"]
                self.budgets[-1].append(share_out(of_budget.tolist(), base * layers, int(min(positions, base * 10.0))))
            if "scores" in self.parts:
                self.array("scores/counts")[number] = counts
                self.array("scores/retention")[number] = counted(1, [min(128, positions) * layers])[0]

    def add_next(self, logits: torch.Tensor) -> None:
        precise = logits.float().cpu().double()
        top = self.array("next/top_ids")
        best = ordered(precise)[: len(top)]
        top[:] = best.numpy()
        self.array("next/top_logits")[:] = precise[best].numpy()
        self.array("next/logit_sum")[0] = float(precise.sum())
        self.array("next/logsumexp")[0] = float(torch.logsumexp(precise, 0))

    # ---- a layer of a generated token

    def decode(self, layer: int, given: Attended, step: int) -> None:
        with exact_products():
            shares, found = self.masses(given, 0)
            if "lazy" in self.parts:
                if step == 0:
                    for name, one in zip(("mass", "proximal_lse", "distant_lse"), found[..., 0].cpu().numpy()):
                        self.array(f"lazy/decode_{name}")[:, layer] = one
                self.array("lazy/generated_mass")[:, layer, step] = in_double(found[0, ..., 0]).mean(1).float().cpu().numpy()
            if "kept" in self.parts and step == 0:
                self.add_kept(layer, given, shares[:, 0])

    def add_kept(self, layer: int, given: Attended, shares: torch.Tensor) -> None:
        """shares: [heads, tokens + 1] of the generated token."""
        n = self.tokens
        attention = in_double(shares).view(self.kv_heads, -1, n + 1).mean(1)
        own, attention = attention[:, n], attention[:, :n]
        up_to = F.pad(attention.cumsum(1), (1, 0))  # [KV heads, n + 1]: of the tokens before
        masks = None
        if self.with_maps and "maps" in self.parts:
            masks = self.array("kept/mask", len(self.numbers["selections"]), self.layers, self.kv_heads, -(-n // 8))
        of_windows = [self.by_order(window_scores(self.held[layer].to(own.device), kind, self.kv_heads), attention) if n > kind["window"] else None
                      for kind in self.numbers["window_kinds"]]  # fmt: skip
        of_columns = None
        if (columns := self.columns[layer]) is not None:
            of_columns = ordered(columns.to(attention.device).view(self.kv_heads, -1, n).double().mean(1).float())
        of_lags = self.lag_orders(layer, given, attention)
        masses, counts = [], []
        for number, rule in enumerate(self.numbers["selections"]):
            places = None  # [KV heads, kept], asked for only where masks are stored
            method = rule["method"]
            if method == "streaming":
                first = min(rule["initial"], n)
                begin = max(first, n - rule["recent"])
                mass, count = up_to[:, first] + up_to[:, n] - up_to[:, begin], first + n - begin
                if masks is not None:
                    places = torch.cat([torch.arange(first), torch.arange(begin, n)]).expand(self.kv_heads, -1)
            elif method in ("snapkv", "dynamickv"):
                window = self.numbers["window_kinds"][rule["kind"]]["window"]
                if of_windows[rule["kind"]] is None:
                    mass, count, best = up_to[:, n], n, 0
                    places = torch.arange(n).expand(self.kv_heads, -1)
                else:
                    order, gathered = of_windows[rule["kind"]]
                    best = rule["budget"] - window
                    if method == "dynamickv":
                        best = self.budgets[rule["kind"]][self.numbers["budgets"].index(rule["budget"])][layer]
                    best = min(best, n - window)
                    mass, count = gathered[:, best] + up_to[:, n] - up_to[:, n - window], best + window
                    places = with_rest(order[:, :best], n - window, n) if masks is not None else None
            elif method == "h2o":
                if of_columns is None:
                    continue
                heavy = rule["budget"] // 2
                recent = max(0, n - (rule["budget"] - heavy))
                order = of_columns[:, : rule["budget"]]
                chosen = [of_head[of_head < recent][:heavy] for of_head in order]
                count = len(chosen[0]) + n - recent
                mass = torch.stack([attention[head, places].sum() for head, places in enumerate(chosen)]) + up_to[:, n] - up_to[:, recent]
                places = with_rest(torch.stack(chosen), recent, n)
            else:
                sink, lag, keep, variant = (rule[key] for key in ("sink", "lag", "keep", "variant"))
                if n < sink + 2 * lag:
                    continue
                if (variant, lag) not in of_lags:  # a layer that the variant leaves whole
                    mass, count, places = up_to[:, n], n, torch.arange(n).expand(self.kv_heads, -1)
                else:
                    order, gathered = of_lags[variant, lag]
                    cut = order.shape[1]
                    end = sink + cut * lag
                    mass = up_to[:, sink] + gathered[:, keep] + up_to[:, n] - up_to[:, end]
                    count = sink + cut * keep + n - end
                    if masks is not None:
                        begins = sink + lag * torch.arange(cut, device=order.device)[None, :, None]
                        chosen = (order[..., :keep] + begins).flatten(1)
                        places = torch.cat([torch.arange(sink, device=order.device).expand(self.kv_heads, -1), with_rest(chosen, end, n)], 1)
            masses.append((number, mass + own))
            counts.append((number, count))
            if masks is not None and places is not None:
                kept: np.ndarray = np.zeros((self.kv_heads, n), np.uint8)
                np.put_along_axis(kept, places.cpu().numpy(), 1, 1)
                masks[number, layer] = np.packbits(kept, axis=1, bitorder="little")
        if masses:
            to = self.array("kept/mass")[:, layer]
            to[[number for number, _ in masses]] = torch.stack([mass for _, mass in masses]).float().cpu().numpy()
            for number, count in counts:
                self.array("kept/tokens")[number, layer] = count

    @staticmethod
    def by_order(scores: torch.Tensor, attention: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The order of positions by score, and the attention on so many of the first of it."""
        order = ordered(scores)
        return order, F.pad(attention.gather(1, order).cumsum(1), (1, 0))

    def lag_orders(self, layer: int, given: Attended, attention: torch.Tensor) -> dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]]:
        """By variant and lag: the order of each cut partition's tokens by score, [KV heads, partitions, lag], and the
        attention on so many of the first of all of them, [KV heads, lag + 1]."""
        rules = [rule for rule in self.numbers["selections"] if rule["method"] == "lagkv"]
        if not rules:
            return {}
        n, sink = self.tokens, rules[0]["sink"]
        of = LagScores(sink, sorted({rule["lag"] for rule in rules}), n)
        if not of.lags:
            return {}
        keys, values = of.of(given.key[:, :n]), of.of(given.value[:, :n])
        scores = {name: keys[name] + values[name] for name in keys}
        if layer >= 2:
            norms = -torch.linalg.vector_norm(given.key[:, sink:n].float(), dim=-1)
            for lag in of.lags:
                scores["l2", lag] = norms[:, : of.cut[lag] * lag].view(self.kv_heads, -1, lag)
        out = {}
        for name, score in scores.items():
            lag = name[1]
            order = ordered(score)
            of_part = attention[:, sink : sink + of.cut[lag] * lag].view(self.kv_heads, -1, lag)
            out[name] = order, F.pad(of_part.gather(2, order).sum(1).cumsum(1), (1, 0))
        return out


def with_rest(chosen: torch.Tensor, begin: int, n: int) -> torch.Tensor:
    return torch.cat([chosen, torch.arange(begin, n, device=chosen.device).expand(chosen.shape[0], -1)], 1)
