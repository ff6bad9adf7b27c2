# SPDX-License-Identifier: Apache-2.0
"""PoD: within a block of layers only the lowest keeps keys of distant tokens; the others score them by its queries and
keys, and weigh their own values."""

from __future__ import annotations

import torch

from .attention import capped
from .band import Band


def _reach(cache) -> int:
    """How many last tokens keep their keys where distant ones are shared: the proximal ones, and those that LagKV will
    score."""
    lag = cache.plan.lag
    return max(cache.plan.pod["recent"], 2 * lag["lag"] if lag else 0)


def _near(positions: torch.Tensor, last: int, initial: int, recent: int) -> torch.Tensor:
    return (positions < initial) | (positions > last - recent)


def borrows(cache, layer: int, band: Band) -> bool:
    """Whether a query head of the band scores distant tokens by another layer's keys."""
    if cache.plan.pod is None:
        return False
    return any(cache.plan.sources(layer, band.first + head) != {layer} for head in range(band.count))


def _source(cache, layer: int, kv_head: int) -> tuple[Band, int]:
    """The band that holds a KV head, and the head's place in it."""
    for band in cache.bands[layer]:
        if band.first <= kv_head < band.first + band.count:
            return band, kv_head - band.first
    raise AssertionError("every KV head is in a band")


def layout(cache, layer: int, kv_head: int, own: torch.Tensor):
    """What a head keeps of its own tokens at the cut: rows of keys among them [1, rows], and positions of values
    [1, rows]; None where all its query heads use its own keys."""
    sources = cache.plan.sources(layer, kv_head)
    if sources == {layer}:
        return None
    rows = torch.arange(len(own))
    if layer not in sources:
        last = len(cache.bands[layer][0].keys) - 1
        rows = rows[_near(own, last, cache.plan.pod["initial"], _reach(cache))]
    values = [own[rows]]
    for source in sources - {layer}:
        band, place = _source(cache, source, kv_head)
        values.append(band.key_positions[place])
    values = torch.unique(torch.cat(values))
    if cache.plan.trimmed(layer)[kv_head]:
        values = values[torch.isin(values, own)]  # of the others its values are gone
    return rows.unsqueeze(0), values.unsqueeze(0)


def forget_keys(cache, layer: int, band: Band) -> None:
    """Drops keys of tokens that have become distant, where nobody reads them."""
    if not band.shares or layer in cache.plan.sources(layer, band.first):
        return
    near = _near(band.key_positions[0], cache.seen - 1, cache.plan.pod["initial"], _reach(cache))
    if not bool(near.all()):
        band.take(near.nonzero().view(1, -1))


def forget_values(cache, layer: int, band: Band) -> None:
    """After LagKV's cut: keeps values of the tokens whose keys are left here or in the lowest layers."""
    left = [band.key_positions[0]]
    for source in cache.plan.sources(layer, band.first) - {layer}:
        lower, place = _source(cache, source, band.first)
        left.append(lower.key_positions[place])
    stays = torch.isin(band.value_positions[0], torch.cat(left))
    band.take_values(stays.nonzero().view(1, -1))


def _pick(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """rows [n, channels] at an ascending index: a view where it is one run."""
    if len(index) and int(index[-1]) - int(index[0]) + 1 == len(index):
        return rows.narrow(0, int(index[0]), len(index))
    return rows.index_select(0, index.to(rows.device))


def attend(cache, layer: int, band: Band, query, scaling, softcap, window) -> torch.Tensor:
    """Of a band of one KV head: [query heads, tokens, channels]. A token at a time, as what is distant differs."""
    plan, kv_head = cache.plan, band.first
    heads = range(kv_head * cache.group, (kv_head + 1) * cache.group)
    initial, recent = plan.pod["initial"], plan.pod["recent"]
    held, of_values = band.key_positions[0], band.value_positions[0]
    keys, values = band.keys.all()[0], band.values.all()[0]
    out = query.new_empty(cache.group, query.shape[1], values.shape[-1])
    # The lowest layers: [(layer, query heads' places, positions of keys, keys)]
    sources = []
    for source in sorted(plan.sources(layer, kv_head)):
        places = [place for place, head in enumerate(heads) if plan.lowest[head][layer] == source]
        lower, place = _source(cache, source, kv_head)
        sources.append((source, places, lower.key_positions[place], lower.keys.all()[place].to(query.device)))

    def score(of: torch.Tensor, on: torch.Tensor) -> torch.Tensor:
        return capped(of @ on.T * scaling, softcap).float()

    for token in range(query.shape[1]):
        position = cache.seen + token
        begin = position - window + 1 if window else 0
        near = _near(held, position, initial, recent) & (held <= position) & (held >= begin)
        near = near.nonzero().view(-1)
        near_keys = _pick(keys, near)
        near_values = _pick(values, torch.searchsorted(of_values, held[near]))
        for source, places, positions, source_keys in sources:
            here = (positions >= initial) & (positions <= position - recent) & (positions >= begin)
            if source != layer:
                here &= torch.isin(positions, of_values)
            far = here.nonzero().view(-1)
            mine = [heads.start + place for place in places]
            of_source = cache.queries[source][mine, token].to(query.device)
            near_scores = score(query[mine, token], near_keys)
            far_scores = score(of_source, _pick(source_keys, far))
            if plan.pod["tau"] < 1 and source != layer and len(far):
                gate = torch.sigmoid(near_scores.logsumexp(-1) - far_scores.logsumexp(-1))
                skips = gate >= plan.pod["tau"]
                cache.gates += len(mine)
                cache.skipped += int(skips.sum())
                far_scores = far_scores.masked_fill(skips[:, None], float("-inf"))
            weights = torch.softmax(torch.cat([near_scores, far_scores], dim=-1), dim=-1).to(values.dtype)
            far_values = _pick(values, torch.searchsorted(of_values, positions[far]))
            out[places, token] = weights[:, : len(near)] @ near_values + weights[:, len(near) :] @ far_values
    return out
