# SPDX-License-Identifier: Apache-2.0
"""Pure functions that choose tokens, layers and blocks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F


def capped(scores: torch.Tensor, softcap: float | None) -> torch.Tensor:
    return softcap * torch.tanh(scores / softcap) if softcap else scores


def last_rows(query, keys, first: int, scaling: float, softcap, window, sinks=None, places=None) -> torch.Tensor:
    """The attention rows of some queries, [heads, rows, tokens] in float32. The queries [heads, rows, channels] are at
    the positions from `first` on, the keys [KV heads, tokens, channels] at `places` [tokens], or from 0 on. `sinks`
    [heads] stand in each row's softmax like the score of one token more."""
    heads, count, channels = query.shape
    grouped = query.float().reshape(keys.shape[0], -1, channels)
    scores = capped((grouped @ keys.float().transpose(1, 2)).view(heads, count, -1) * scaling, softcap)
    row = torch.arange(first, first + count, device=query.device)[:, None]
    key = (torch.arange(keys.shape[1], device=query.device) if places is None else places)[None, :]
    hidden = key > row
    if window:
        hidden |= key <= row - window
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    return torch.softmax(torch.cat([scores, sinks.float()[:, None, None].expand(-1, count, 1)], dim=-1), dim=-1)[..., :-1]


def column_sums(query, keys, scaling: float, softcap, window) -> torch.Tensor:
    """How much attention each key gets from all rows together, as the mean over the query heads of a KV head:
    [KV heads, tokens]."""
    heads, tokens, _ = query.shape
    precise = torch.float32 if query.device.type == "mps" else torch.float64
    sums = torch.zeros(heads, tokens, dtype=precise, device=query.device)
    for first in range(0, tokens, 256):
        sums += last_rows(query[:, first : first + 256], keys, first, scaling, softcap, window).sum(1, dtype=precise)
    return sums.view(keys.shape[0], -1, tokens).mean(1).float()


def greatest_attention(query, keys, prompt: int, part: range, sink: int, scaling: float, softcap, window) -> torch.Tensor:
    """The greatest attention on each token of a part of the prompt, [KV heads, tokens of the part], of any query
    [heads, rows, channels] of what is read behind the `prompt` tokens. Beside the part the queries see the first `sink`
    tokens and what is read, of all keys [KV heads, tokens, channels]."""
    places = torch.cat([torch.arange(sink), torch.arange(part.start, part.stop), torch.arange(prompt, keys.shape[1])]).to(keys.device)
    seen = keys[:, places]
    greatest = torch.zeros(keys.shape[0], len(part), device=keys.device)
    for first in range(0, query.shape[1], 256):
        rows = last_rows(query[:, first : first + 256], seen, prompt + first, scaling, softcap, window, places=places)
        on_part = rows[..., sink : sink + len(part)].amax(1).view(keys.shape[0], -1, len(part))
        greatest = torch.maximum(greatest, on_part.amax(1))
    return greatest


def largest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """The places of the `count` largest scores along the last axis, ascending. Of equal scores the earlier one
    counts."""
    order = torch.sort(scores, dim=-1, descending=True, stable=True).indices
    return torch.sort(order[..., :count], dim=-1).values


def best_and_rest(scores: torch.Tensor, best: int, begin: int, length: int) -> torch.Tensor:
    """The places of the `best` largest of scores [heads, positions], ascending, and behind them the positions from
    `begin` to length - 1."""
    chosen = largest(scores, min(best, scores.shape[1])).cpu()
    return torch.cat([chosen, torch.arange(begin, length).expand(len(scores), -1)], dim=1)


def proximal(length: int, initial: int, recent: int) -> torch.Tensor:
    """Of `length` positions the first `initial` and the last `recent`."""
    begin = max(0, length - recent)
    if initial >= begin:
        return torch.arange(length)
    return torch.cat([torch.arange(initial), torch.arange(begin, length)])


def proximal_mass(rows: torch.Tensor, initial: int, recent: int) -> torch.Tensor:
    """The mass on proximal keys, [heads, rows], of the last rows of causal attention, [heads, rows, keys]."""
    count, keys = rows.shape[1:]
    row = torch.arange(keys - count, keys)[:, None]
    key = torch.arange(keys)[None, :]
    near = (key < initial) | ((key > row - recent) & (key <= row))
    return (rows.cpu().double() * near).sum(-1)


def window_scores(rows: torch.Tensor, kernel: int, pooling: str) -> torch.Tensor:
    """The scores of the keys before the window, [heads, keys - window], by the last attention rows, [heads, window,
    keys]."""
    window, keys = rows.shape[1:]
    mean = rows[..., : keys - window].mean(1).unsqueeze(1)
    if pooling == "avg":
        pooled = F.avg_pool1d(mean, kernel, stride=1, padding=kernel // 2, count_include_pad=True)
    else:
        pooled = F.max_pool1d(mean, kernel, stride=1, padding=kernel // 2)
    return pooled.squeeze(1)


def unlike_mean_scores(keys: torch.Tensor) -> torch.Tensor:
    """KeyDiff's scores of keys [heads, tokens, channels]: the less a key is like the mean of all, each at length 1, the
    more."""
    mean = F.normalize(keys.float(), dim=-1).mean(1, keepdim=True)
    return -F.cosine_similarity(keys.float(), mean, dim=-1)


def with_window(scores: torch.Tensor, window: int) -> torch.Tensor:
    """Scores [heads, positions] with those of the window behind them: the best of all, and 1 more."""
    return torch.cat([scores, (scores.max() + 1).expand(len(scores), window)], dim=1)


def best_chunks(scores: torch.Tensor, window: int, chunk: int, count: int) -> torch.Tensor:
    """ChunkKV's choice among chunks of neighbouring tokens, by the scores [heads, tokens] of those before the window. Of
    equal chunks the later counts."""
    tokens = with_window(scores, window).sum(0)
    whole = tokens.shape[0] // chunk * chunk
    chunks = tokens[:whole].view(-1, chunk).mean(1)
    if whole < tokens.shape[0]:
        chunks = torch.cat([chunks, tokens[whole:].mean(0, keepdim=True)])
    return len(chunks) - 1 - largest(chunks.flip(0), count)


def top_counts(scores: list[torch.Tensor], count: int) -> list[int]:
    """How many of the `count` largest of all scores lie in each layer. Of equal scores those of lower layers count."""
    if count <= 0:
        return [0] * len(scores)
    flat = torch.cat([layer.flatten() for layer in scores])
    least = torch.topk(flat, min(count, flat.numel())).values[-1]
    above = [int((layer > least).sum()) for layer in scores]
    left = count - sum(above)
    for number, layer in enumerate(scores):
        ties = min(left, int((layer == least).sum()))
        above[number] += ties
        left -= ties
    return above


def counts_of_best(scores: torch.Tensor, count: int, safe: int) -> list[int]:
    """How many of the `count` largest of all scores [rows, positions] lie in each row, if the `safe` largest of each
    row are taken first. Of equal scores those of earlier rows count."""
    guarded = scores.clone()
    if safe > 0:
        guarded.scatter_(1, largest(scores, safe), math.inf)
    return top_counts(list(guarded), count)


def layer_budgets(counts: list[int], base: int, positions: int, r_max: float, layers: int) -> list[int]:
    """How many tokens each of the lowest layers keeps under DynamicKV, without the window, by how many of the largest
    scores lie in it. No layer keeps more than the cap, and what that cuts off goes to the others: the sum is base *
    `layers`, the number of all layers, or less if every layer with counts is at the cap."""
    cap = int(min(positions, base * r_max))
    budgets = [cap] * len(counts)
    below, total = list(range(len(counts))), base * layers
    while True:
        weights = [counts[layer] for layer in below]
        if sum(weights) == 0:  # layers without any score share alike
            weights = [1] * len(below)
        whole = sum(weights)
        keep = [total * weight <= cap * whole for weight in weights]
        if all(keep):
            break
        total -= cap * keep.count(False)  # the others have more to share
        below = [layer for layer, kept in zip(below, keep) if kept]
    for layer, weight in zip(below, weights):
        budgets[layer] = total * weight // whole
    left = total - sum(budgets[layer] for layer in below)
    order = sorted(range(len(below)), key=lambda i: -(total * weights[i] % whole))
    for i in order[: max(0, left)]:
        budgets[below[i]] += 1
    return budgets


def dynamic_budgets(scores: list[torch.Tensor], base: int, r_max: float, update: int) -> list[int]:
    """DynamicKV's budgets, [layer], by the scores [layer] of [heads, positions]. After every `update` layers and after
    the last, the layers so far share what all layers may keep, and a layer keeps the least of its own budgets."""
    heads, positions = scores[0].shape
    budgets = [positions] * len(scores)
    for layers in {*range(update or len(scores), len(scores), update or 1), len(scores)}:
        counts = top_counts(scores[:layers], min(base, positions) * heads * layers)
        for layer, budget in enumerate(layer_budgets(counts, base, positions, r_max, len(scores))):
            budgets[layer] = min(budgets[layer], budget)
    return budgets


def pyramid_budgets(mean: int, layers: int) -> list[int]:
    """PyramidKV's budgets, which fall linearly over the layers from 2 mean - mean / 20 to mean / 20."""
    least = mean / 20
    ways = [layer / (layers - 1) if layers > 1 else 0.5 for layer in range(layers)]
    return round_to_total([2 * mean - least - way * 2 * (mean - least) for way in ways], mean * layers)


def round_to_total(values: list[float], total: int) -> list[int]:
    """Whole numbers near the values with this sum. What rounding down leaves goes to the largest remainders, of equal
    ones to the earlier."""
    scale = total / sum(values) if sum(values) > 0 else 0
    shares = [value * scale for value in values]
    whole = [math.floor(share + 1e-9) for share in shares]
    left = [round((share - floor) * 1e9) for share, floor in zip(shares, whole)]
    order = sorted(range(len(values)), key=lambda i: -left[i])
    rest = total - sum(whole)
    for i in range(rest):
        whole[order[i % len(order)]] += 1
    for i in reversed(order):  # rounding may have given one too many away
        if rest < 0 and whole[i] > 0:
            whole[i] -= 1
            rest += 1
    return whole


def lag_scores(keys: torch.Tensor, values: torch.Tensor, variant: str) -> torch.Tensor:
    """The scores of all partitions but the last, [heads, partitions, lag]. keys and values are [heads, partitions + 1,
    lag, channels]; the last partition only serves as a reference for the one before it."""
    if variant == "l2":
        return -torch.linalg.vector_norm(keys[:, :-1].float(), dim=-1)

    def of(rows: torch.Tensor) -> torch.Tensor:
        rows = rows.float()
        against = rows[:, 1:] if variant == "lag" else rows[:, :-1]
        least = against.amin(2, keepdim=True)
        spread = against.amax(2, keepdim=True) - least
        flat = spread < 2.0**-126
        normal = ((rows[:, :-1] - least) / spread.masked_fill(flat, 1)).masked_fill(flat, 0)
        return torch.softmax(normal.std(-1), dim=-1)

    return of(keys) + of(values)


def lag_kept(keys: torch.Tensor, values: torch.Tensor, keep: int, variant: str, first: int, length: int) -> torch.Tensor:
    """The rows that stay, [heads, rows], of `length` rows whose partitions begin at row `first`: `keep` of each partition
    of keys and values [heads, partitions + 1, lag, channels] but the last, and all rows before and behind."""
    partitions, lag = keys.shape[1] - 1, keys.shape[2]
    best = largest(lag_scores(keys, values, variant), keep).cpu() + torch.arange(partitions)[:, None] * lag
    before = torch.arange(first).expand(len(keys), -1)
    behind = torch.arange(first + partitions * lag, length).expand(len(keys), -1)
    return torch.cat([before, first + best.reshape(len(keys), -1), behind], dim=1)


def entropy(rows: torch.Tensor) -> torch.Tensor:
    return -torch.special.xlogy(rows, rows).sum(-1) / math.log(2)


def layer_similarity(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How similar the attention rows [heads, rows, keys] of two layers are: 1 - their mean Jensen-Shannon divergence,
    [heads]."""
    a, b = a.double(), b.double()
    divergence = entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2
    return 1 - divergence.mean(-1)


def pod_blocks(rows: list[torch.Tensor], kv_heads: int, per_query_head: bool, delta: float) -> list[list[int]]:
    """The lowest layer of the block that each layer is in, [query head][layer], by the layers' attention rows, [layer]
    of [heads, rows, keys]. A layer joins the block below it if it is at least delta similar to every layer in it."""
    heads = rows[0].shape[0]
    units = heads if per_query_head else kv_heads
    lowest: list[list[int]] = [[] for _ in range(units)]
    for layer in range(len(rows)):
        similar = {}
        first = min((unit[-1] for unit in lowest if unit), default=layer)
        for member in range(first, layer):
            of_heads = layer_similarity(rows[layer], rows[member])
            similar[member] = of_heads.view(units, -1).amin(-1).tolist()
        for number, unit in enumerate(lowest):
            block = range(unit[-1], layer) if unit else ()
            joins = unit and all(similar[member][number] >= delta for member in block)
            unit.append(unit[-1] if joins else layer)
    return [unit for unit in lowest for _ in range(heads // units)]


def drawn_layers(seed: int, layers: range, count: int) -> list[int]:
    """Draws `count` of the layers by the seed. kvatlas draws the same ones (by splitmix64)."""
    mask = (1 << 64) - 1
    state = seed

    def draw() -> int:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    for byte in b"random layers":
        state = draw() ^ byte
    order = list(layers)
    for i in range(len(order), 1, -1):
        j = draw() % i
        order[i - 1], order[j] = order[j], order[i - 1]
    return sorted(order[:count])
