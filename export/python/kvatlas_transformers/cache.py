# SPDX-License-Identifier: Apache-2.0
"""The cache that holds what a policy keeps, and the attention on it."""

from __future__ import annotations

import torch
from transformers import Cache

from . import attention, selection
from .band import Band
from .cache_layer import CacheLayer
from .errors import PolicyError
from .kvzip import KvZip, Reader
from .parts import ModelShape, Part
from .plan import Plan
from .planner import Seen
from .pod import Source
from .precision import Formats, stored
from .rows import GROUP, Rows


class PolicyCache(Cache):
    """A cache for one sequence. The first forward pass is the prompt, which sees itself in full; it is then cut as the
    policy says. What follows is appended and kept, save where the policy says otherwise. Cuts happen at the end of a
    forward pass."""

    def __init__(self, shape: ModelShape, parts: list[Part], kv_bits: int, kv_residual: int, rotary=None, reader: Reader | None = None):
        super().__init__(layers=[CacheLayer(self) for _ in range(shape.layers)])
        self.shape, self.parts, self.kv_residual, self.rotary, self.reader = shape, parts, kv_residual, rotary, reader
        self.formats = Formats(shape, parts, kv_bits)
        self.reset()
        if self.plan.delay and self.formats.rounds_prompt:
            raise PolicyError("precision: a policy that decides while decoding cannot change how the prompt is read")
        if isinstance(self.plan.selects, KvZip) and self.formats.rounds_prompt:
            raise PolicyError("kvzip: a prompt that attends to what is rounded is repeated by 'kvatlas evaluate' alone")

    # What a user asks.

    def kept(self) -> list[list[list[int]]]:
        """The positions of the tokens that are held: [layer][KV head]. Where PoD shares keys, the positions of the
        values."""
        out = []
        for bands in self.bands:
            out.append([row.tolist() for band in bands for row in band.value_positions])
        return out

    def lengths(self) -> list[int]:
        """For each layer, how many tokens the KV head holds that holds most."""
        return [max(band.value_positions.shape[1] for band in bands) for bands in self.bands]

    def bytes(self) -> int:
        """How many bytes of memory the keys and values take. Each storage behind them counts once."""
        storages = {}
        for bands in self.bands:
            for band in bands:
                for tensor in band.tensors():
                    storage = tensor.untyped_storage()
                    storages[storage.data_ptr(), tensor.device] = storage.nbytes()
        return sum(storages.values())

    def decided(self) -> dict:
        """What the policy decided on this prompt, once the cache is cut: the layers that are "lazy", "lazy_heads",
        "mass", "budgets", "lowest_layer", as far as it decides them."""
        return self.plan.decided() if self.is_cut else {}

    def read_with(self, others: list[PolicyCache]) -> None:
        """The next prompt is read once for these caches too: each then holds what its own policy keeps of it."""
        for cache in (self, *others):
            if cache.seen or cache.formats.rounds_prompt:
                raise PolicyError("a cache that is not empty, or whose prompt attends to what is rounded, reads its prompt alone")
        self._readers = [self, *others]

    # What transformers calls.

    def reset(self) -> None:
        """Forgets everything, so that the cache is ready for another sequence."""
        self.plan = Plan(self.shape, self.parts)
        self.bands: list[list[Band]] = [[] for _ in range(self.shape.layers)]
        self.queries: dict[int, torch.Tensor] = {}  # of this pass, for PoD: [layer] of [heads, tokens, channels]
        self.seen = 0  # how many tokens the finished passes had
        self.is_cut = False
        self.coded = 0  # tokens before this one are quantised, where 32 tokens are quantised together
        self.partitions = 0  # how many partitions LagKV has cut
        self.gates = self.skipped = 0  # PoD: how many gates there were, and how many skipped the distant tokens
        self._layer = self._next_layer = 0
        self._pending = False
        self._readers = [self]  # the caches that the next prompt is read for

    @property
    def is_compileable(self) -> bool:
        return False

    @property
    def is_croppable(self) -> bool:
        return False

    @property
    def max_batch_size(self) -> int:
        return 1

    def update(self, key_states, value_states, layer_idx: int, *args, **kwargs):
        """Marks the new keys, so that our attention function knows this cache and calls attend()."""
        if self._pending:
            self._pending = False
            raise PolicyError(
                "the model did not call kvatlas' attention function on this cache: its attention implementation is "
                "another now, or it is a model that changes keys behind the cache"
            )
        batch, heads, _, channels = key_states.shape
        if batch != 1:
            raise PolicyError(f"a batch of {batch} sequences, expected 1: a policy keeps other tokens of each")
        if (heads, channels) != (self.shape.kv_heads, self.shape.head_dim) or value_states.shape != key_states.shape:
            raise PolicyError(
                f"layer {layer_idx} has {heads} KV heads of {channels} channels (values of {value_states.shape[-1]}), "
                f"the policy is for {self.shape.kv_heads} of {self.shape.head_dim}"
            )
        if layer_idx != self._next_layer:
            raise PolicyError(
                f"layer {layer_idx} came where layer {self._next_layer} was expected; "
                "after a forward pass that failed, a cache needs reset()"
            )
        self._pending = True
        self._layer = layer_idx
        setattr(key_states, attention.MARK, self)
        return key_states, value_states

    def reorder_cache(self, beam_idx):
        raise PolicyError("beam search needs several sequences; a kvatlas cache holds one")

    def batch_repeat_interleave(self, repeats: int):
        if repeats != 1:
            raise PolicyError("several sequences from one prompt; a kvatlas cache holds one")

    def batch_select_indices(self, indices):
        raise PolicyError("several sequences from one prompt; a kvatlas cache holds one")

    def crop(self, *args, **kwargs):
        raise PolicyError("a cache that a policy has cut cannot be shortened (as assisted generation does)")

    # The attention.

    @torch.no_grad()
    def attend(self, module, query, key, value, mask, scaling, dropout, sliding_window=None, softcap=None, **kwargs):
        """The attention of the layer that update() was called for: [1, tokens, heads, channels]."""
        self._pending = False
        layer = self._layer
        self._next_layer = (layer + 1) % self.shape.layers
        kwargs.update(sliding_window=sliding_window, softcap=softcap)
        if self.seen == 0:
            if layer == 0:
                _refuse_padding(mask, key.shape[2], sliding_window)
            if self.formats.rounds_prompt:
                key, value = (rows[None] for rows in self.formats.as_read(layer, key[0], value[0]))
            out, _ = attention.usual_attention(module, query, key, value, mask, scaling, dropout, **kwargs)
            seen = Seen(module, self.rotary, query[0], _own(key[0]), _own(value[0]), scaling, softcap, sliding_window)
            for cache in self._readers:
                cache._take_prompt(layer, seen)
        else:
            out = self._continue(layer, query[0], key[0], value[0], scaling, softcap, sliding_window)
            out = out.transpose(0, 1).unsqueeze(0)
        if layer == self.shape.layers - 1:
            for cache in self._readers:
                cache._end_pass(key.shape[2])
            self._readers = [self]
        return out

    def _take_prompt(self, layer: int, seen: Seen) -> None:
        self.plan.observe(layer, seen)
        positions = torch.arange(seen.key.shape[1]).expand(self.shape.kv_heads, -1)
        self.bands[layer] = [Band(0, Rows(seen.key), Rows(seen.value), positions)]
        if self.plan.is_local:
            self._cut(layer)

    def _continue(self, layer: int, query, key, value, scaling, softcap, window) -> torch.Tensor:
        """The attention of a pass after the prompt: [heads, tokens, channels]."""
        if self.plan.pod and self.is_cut:
            self.queries[layer] = query
        outs = []
        for band in self.bands[layer]:
            band.append(key, value, self.seen)
            if window and not (self.plan.lag or self.plan.pod) and self.is_cut:
                band.forget(self.seen - window + 1)
            if band.shares:
                outs.append(self._attend_shared(layer, band, query, scaling, softcap, window))
            else:
                if self.plan.pod:
                    self.gates += self.plan.pod.gates(band.key_positions, self.seen, query.shape[1], window)
                outs.append(self._attend_band(band, query, scaling, softcap, window))
        return torch.cat(outs)

    def _attend_shared(self, layer: int, band: Band, query, scaling, softcap, window) -> torch.Tensor:
        sources = []
        for source in self.plan.pod.sources(layer, band.first):
            lender, place = self._band_of(source, band.first)
            keys = lender.keys.all()[place].to(query.device)
            sources.append(Source(source, lender.key_positions[place], keys, self.queries[source]))
        out, gates, skipped = self.plan.pod.attend(band, layer, query, sources, self.seen, scaling, softcap, window)
        self.gates += gates
        self.skipped += skipped
        return out

    def _attend_band(self, band: Band, query, scaling, softcap, window) -> torch.Tensor:
        heads, tokens, channels = query.shape
        mine = query[band.first * self.shape.group : (band.first + band.count) * self.shape.group]
        grouped = mine.reshape(band.count, self.shape.group * tokens, channels)
        scores = selection.capped(grouped @ band.keys.all().transpose(1, 2) * scaling, softcap)
        scores = scores.view(band.count, self.shape.group, tokens, -1)
        if tokens > 1 or window and int(band.key_positions[:, 0].min()) <= self.seen - window:
            row = torch.arange(self.seen, self.seen + tokens)[None, :, None]
            held = band.key_positions[:, None, :]
            hidden = held > row
            if window:
                hidden |= held <= row - window
            scores = scores.masked_fill(hidden.unsqueeze(1).to(scores.device), float("-inf"))
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32)
        if not self.is_cut and self.plan.delay:
            # The first token behind the prompt decides. Nothing is cut yet, so that one band holds all heads.
            self.plan.observe_first_step(weights.view(heads, tokens, -1)[:, :1, : self.seen + 1])
        weights = weights.to(query.dtype).view(band.count, self.shape.group * tokens, -1)
        return (weights @ band.values.all()).view(-1, tokens, channels)

    # Cuts.

    def _end_pass(self, tokens: int) -> None:
        was_prompt = self.seen == 0
        self.seen += tokens
        if was_prompt and isinstance(self.plan.selects, KvZip):
            self.plan.selects.repeat(self.reader, [whole for (whole,) in self.bands])
        if not self.is_cut:
            if was_prompt and self.plan.delay:
                return
            if not self.plan.is_local:
                for layer in range(self.shape.layers):
                    self._cut(layer)
            self.is_cut = True
            if self.plan.lag:
                self.partitions = self.plan.lag.partitions(self.seen)
            self.plan.forget()
            return
        self.queries = {}
        if self.plan.lag:
            self._cut_partitions()
        self._code_groups()
        for layer, band in self._sharing_bands():
            rows = self._near_keys(layer, band.first, band.key_positions[0], self.seen - 1)
            if len(rows) < len(band.keys):
                band.take(rows.view(1, -1))

    def _cut(self, layer: int) -> None:
        """Leaves of all tokens of the layer only what the policy keeps."""
        plan, (whole,) = self.plan, self.bands[layer]
        own = plan.kept(layer, whole)
        heads = self.shape.kv_heads
        self.coded = max(0, len(whole.keys) - self.kv_residual)
        codes = [int((kept < self.coded).sum()) for kept in own]
        apart = [self._layout(layer, head, own[head], len(whole.keys) - 1) for head in range(heads)]
        lag = [plan.cut_by_lag(layer, head) for head in range(heads)]
        bands, first = [], 0
        while first < heads:
            end = first + 1
            while (
                end < heads
                and apart[first] is None
                and apart[end] is None
                and (len(own[end]), codes[end], lag[end]) == (len(own[first]), codes[first], lag[first])
            ):
                end += 1
            bands.append(self._cut_band(layer, whole, first, torch.stack(own[first:end]), apart[first], lag[first]))
            first = end
        self.bands[layer] = bands

    def _cut_band(self, layer: int, whole: Band, first: int, own: torch.Tensor, apart, lag: bool) -> Band:
        """The band that keeps the tokens `own` [heads, tokens] of its heads. Where PoD shares keys, `apart` says which
        of them keep their keys, and the positions of the values."""
        count, (key_format, value_format) = len(own), self.formats.layers[layer]
        keys, values = whole.keys.heads(first, count), whole.values.heads(first, count)
        if apart is None and count == self.shape.kv_heads and own.shape[1] == len(whole.keys):
            of_values = own
        else:
            of_values = own if apart is None else apart[1]
            keys, values = keys.take(own), values.take(of_values)
        # All of the head's own keys are quantised together, also those that do not stay.
        keys = stored(keys.data, key_format, True, int((own[0] < self.coded).sum()))
        values = stored(values.data, value_format, False, int((of_values[0] < self.coded).sum()))
        if apart is None:
            return Band(first, keys, values, own, lag=lag)
        return Band(first, keys.take(apart[0]), values, own.gather(1, apart[0]), of_values, lag=lag)

    def _code_groups(self) -> None:
        """Quantises 32 tokens more whenever so many more than the residual are at 16 bits."""
        while self.seen - self.kv_residual - self.coded >= GROUP:
            self.coded += GROUP
            for bands in self.bands:
                for band in bands:
                    band.code(self.coded)

    def _cut_partitions(self) -> None:
        lag, done = self.plan.lag, self.partitions
        self.partitions = lag.partitions(self.seen)
        if self.partitions <= done:
            return
        for bands in self.bands:
            for band in bands:
                if band.lag:
                    band.take(lag.kept_rows(band, done, self.partitions))
        for layer, band in self._sharing_bands():
            if band.lag:
                # Values stay for the tokens whose keys are left here or in the layers that lend keys.
                left = torch.cat([band.key_positions[0], *self._lent(layer, band.first)])
                band.take_values(torch.isin(band.value_positions[0], left).nonzero().view(1, -1))

    # What PoD shares.

    def _sharing_bands(self) -> list[tuple[int, Band]]:
        return [(layer, band) for layer, bands in enumerate(self.bands) for band in bands if band.shares]

    def _band_of(self, layer: int, kv_head: int) -> tuple[Band, int]:
        """The band that holds the KV head, and the place of the head in it."""
        for band in self.bands[layer]:
            if band.first <= kv_head < band.first + band.count:
                return band, kv_head - band.first
        raise AssertionError("every KV head is in a band")

    def _lent(self, layer: int, kv_head: int) -> list[torch.Tensor]:
        """The positions of the keys that the head reads in other layers."""
        lenders = [source for source in self.plan.pod.sources(layer, kv_head) if source != layer]
        return [band.key_positions[place] for band, place in (self._band_of(lender, kv_head) for lender in lenders)]

    def _near_keys(self, layer: int, kv_head: int, positions: torch.Tensor, last: int) -> torch.Tensor:
        reach = 2 * self.plan.lag.part["lag"] if self.plan.lag else 0  # the keys that LagKV will score
        return self.plan.pod.near_keys(layer, kv_head, positions, last, reach)

    def _layout(self, layer: int, kv_head: int, own: torch.Tensor, last: int):
        """What a head keeps of its own tokens when it is cut: which of them keep their keys [1, rows], and the
        positions of the values [1, rows]. None if all query heads of the head use its own keys."""
        lent = self._lent(layer, kv_head) if self.plan.pod else []
        if not lent:
            return None
        rows = self._near_keys(layer, kv_head, own, last)
        values = torch.unique(torch.cat([own[rows], *lent]))
        if self.plan.trimmed(layer)[kv_head]:
            values = values[torch.isin(values, own)]  # the values of other tokens are gone
        return rows.unsqueeze(0), values.unsqueeze(0)


def _own(rows: torch.Tensor) -> torch.Tensor:
    """The rows in memory of their own. What the model hands over may be part of a larger array, as fused projections
    make it, which would stay in memory as a whole."""
    rows = rows.detach().contiguous()
    if rows.untyped_storage().nbytes() > rows.numel() * rows.element_size():
        rows = rows.clone()
    return rows


def _refuse_padding(mask, length: int, window) -> None:
    """Raises PolicyError unless the last row of the prompt sees all keys, except those that the model's own window
    hides."""
    if mask is None or not isinstance(mask, torch.Tensor) or mask.dim() != 4:
        return
    begin = max(0, length - window) if window else 0
    row = mask[0, 0, -1, begin:length]
    seen = row if row.dtype == torch.bool else row == 0
    if not bool(seen.all()):
        raise PolicyError("the prompt is padded (its attention mask hides tokens); a kvatlas cache is for one sequence")
