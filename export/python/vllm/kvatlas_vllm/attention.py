# SPDX-License-Identifier: Apache-2.0
"""How layers that are cut attend. vLLM's own kernels run. Attention is a sum over a set, and positions are in the keys
already, so what is kept of a request may lie anywhere: its rows are moved together, to the end of its blocks, and the
kernels get block tables that begin with the first block that holds any.

Of n tokens the first h are hidden, in the number, not in the place: row l of those that are held lies in slot
h // block * block + l, and the token at position p is written to slot p - h % block."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

import torch

from .blocks import CutSpec
from .cuts import Cut, Layer
from .settings import PolicyError


@dataclass
class Span:
    """Tokens of a request, at the positions from `first` to end - 1, that see the same tokens before them."""

    row: int  # of the request in the batch
    first: int
    end: int
    token: int  # the place of the first one in the batch
    prompt: int
    hidden: int
    dropped: int = 0  # how many tokens are dropped before the first one is computed

    def slots(self, table: torch.Tensor, block: int, hidden: int, begin: int, end: int) -> torch.Tensor:
        """Where the rows from `begin` to end - 1 of the request lie while so many tokens are hidden."""
        places = torch.arange(begin, end, device=table.device) + hidden // block * block
        return table[self.row, places // block].long() * block + places % block


def spans_of(cut: Cut, common, block: int) -> list[list[Span]]:
    """The batch in phases: the first spans of all requests, then the second ones, and so on. A request has several if it
    is computed anew, up to behind its prompt, after it was preempted."""
    starts = common.query_start_loc_cpu[: common.num_reqs + 1].tolist()
    bound = common.seq_lens_cpu_upper_bound
    ends = (common.seq_lens if bound is None else bound)[: common.num_reqs].tolist()
    prompts = common.rswa_prefix_lens[: common.num_reqs].tolist()
    phases: list[list[Span]] = []
    for row, (token, stop, end, prompt) in enumerate(zip(starts, starts[1:], ends, prompts)):
        first = end - (stop - token)
        if stop == token:
            continue
        before = cut.hidden(first - 1, prompt)
        counts = cut.due(first, end, prompt)
        for phase, begin in enumerate([first, *(count for count in counts if count > first)]):
            behind = [count for count in counts if count > begin]
            hidden = cut.hidden(begin, prompt)
            until = behind[0] if behind else end
            if phase == len(phases):
                phases.append([])
            phases[phase].append(Span(row, begin, until, token + begin - first, prompt, hidden, hidden - before))
            before = hidden
    return phases


def seen_by(common, spans: list[Span], block: int):
    """The metadata of a batch of these spans, as layers that are cut see it."""
    table, device = common.block_table_tensor, common.block_table_tensor.device
    queries = torch.tensor([0] + [span.end - span.first for span in spans], dtype=torch.int32)
    lengths = torch.tensor([span.end - span.hidden for span in spans], dtype=torch.int32)
    shift = torch.tensor([span.hidden // block for span in spans])[:, None]
    rows = torch.tensor([span.row for span in spans])
    columns = torch.arange(-(-int(lengths.max()) // block))[None, :] + shift
    columns = columns.clamp(max=table.shape[1] - 1).to(device)
    starts = queries.cumsum(0, dtype=torch.int32)
    return replace(
        common,
        num_reqs=len(spans),
        num_actual_tokens=int(starts[-1]),
        query_start_loc=starts.to(device),
        query_start_loc_cpu=starts,
        seq_lens=lengths.to(device),
        seq_lens_cpu_upper_bound=lengths,
        max_query_len=int(queries.max()),
        max_seq_len=int(lengths.max()),
        block_table_tensor=torch.gather(table[rows.to(device)], 1, columns).to(table.dtype).contiguous(),
        is_prefilling=None if common.is_prefilling is None else common.is_prefilling[rows],
        rswa_prefix_lens=None,
        _num_computed_tokens_cache=None,
        _token_to_req_indices_cache=None,
    )


class Batch:
    """What the layers of one group do with a batch, beside what vLLM's kernels do."""

    def __init__(self, cut: Cut, common, block: int):
        self.cut, self.block, self.table = cut, block, common.block_table_tensor
        self.phases = spans_of(cut, common, block)
        self.slots = [self.written(phase) for phase in self.phases]  # [phase] of [tokens]

    def written(self, spans: list[Span]) -> torch.Tensor:
        return torch.cat([one.slots(self.table, self.block, one.hidden, one.first - one.hidden, one.end - one.hidden) for one in spans])

    def tokens(self, phase: int) -> torch.Tensor:
        """The places in the batch of a phase's tokens."""
        return torch.cat([torch.arange(one.token, one.token + one.end - one.first) for one in self.phases[phase]])

    def write_slots(self, mapping: torch.Tensor) -> None:
        """Into vLLM's own array, from which each layer's new keys and values are written. What belongs to a later phase
        has to wait."""
        if len(self.phases) > 1:
            mapping.fill_(-1)
        mapping[self.tokens(0).to(mapping.device)] = self.slots[0].to(mapping.dtype)

    def key(self, span: Span) -> int:
        """What names a request in all steps from the first query that is kept of it until its cut: a block that no other
        has. The block of the prompt's last token may not be there yet."""
        place = 0 if self.cut.columns else span.prompt - self.cut.queries
        return int(self.table[span.row, place // self.block])

    def observe(self, impl: Impl, query: torch.Tensor) -> None:
        """Keeps what the cut needs of the prompt's queries [tokens, heads, channels]."""
        cut = self.cut
        if not (cut.queries or cut.columns):
            return
        for span in self.phases[0]:
            begin = 0 if cut.columns else span.prompt - cut.queries
            first, end = max(begin, span.first), min(span.end, span.prompt)
            if first >= end or not cut.hidden(span.prompt, span.prompt):
                continue
            mine = query[span.token + first - span.first : span.token + end - span.first].transpose(0, 1)
            if cut.columns:
                impl.add_columns(self.key(span), mine, first, span.prompt, span.slots(self.table, self.block, 0, 0, end))
            else:
                impl.keep_queries(self.key(span), mine, first - begin, cut.queries)

    def make_cuts(self, phase: int, impl: Impl, cache: torch.Tensor) -> None:
        """Drops what is due before the phase's tokens are computed."""
        for span in self.phases[phase]:
            if span.dropped == 0:
                continue
            before, held = span.hidden - span.dropped, span.first - span.hidden
            slots = span.slots(self.table, self.block, before, 0, span.first - before)
            seen = impl.seen.pop(self.key(span)) if self.cut.queries or self.cut.columns else None
            layer = impl.layer(cache, slots, seen)
            rows = self.cut.choose(layer, span.first, span.prompt).to(slots.device)
            impl.layout(cache).move(slots[rows], span.slots(self.table, self.block, span.hidden, 0, held))


class Impl:
    """Mixed into vLLM's attention of a layer that is cut."""

    layout: type

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen: OrderedDict[int, torch.Tensor] = OrderedDict()
        self.most_seen = 0

    def kept_seen(self, key: int, shape: tuple[int, ...], dtype, device, anew: bool) -> torch.Tensor:
        """The array of a request. Requests that end within their prompts leave theirs behind, so the oldest ones go."""
        if anew or key not in self.seen:
            self.seen.pop(key, None)
            self.seen[key] = torch.zeros(shape, dtype=dtype, device=device)
            while len(self.seen) > self.most_seen:
                self.seen.popitem(last=False)
        return self.seen[key]

    def keep_queries(self, key: int, queries: torch.Tensor, place: int, count: int) -> None:
        heads, rows, channels = queries.shape
        seen = self.kept_seen(key, (heads, count, channels), queries.dtype, queries.device, place == 0)
        seen[:, place : place + rows] = queries

    def add_columns(self, key: int, queries: torch.Tensor, first: int, prompt: int, slots: torch.Tensor) -> None:
        layer = self.layer(self.cache, slots, None)
        seen = self.kept_seen(key, (len(layer.keys), prompt), torch.float64, queries.device, first == 0)
        for begin in range(0, queries.shape[1], 256):
            rows = layer.attention(queries[:, begin : begin + 256], first + begin).sum(1, dtype=torch.float64)
            seen[:, : rows.shape[1]] += rows.view(len(layer.keys), -1, rows.shape[1]).mean(1)

    def layer(self, cache: torch.Tensor, slots: torch.Tensor, seen: torch.Tensor | None) -> Layer:
        keys, values = self.layout(cache).keys_and_values(slots)
        return Layer(keys.float(), values.float(), seen, self.scale, getattr(self, "logits_soft_cap", None), self.sinks)

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs):
        batch: Batch | None = getattr(attn_metadata, "kvatlas", None)
        if batch is None:
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs)
        self.cache = kv_cache
        batch.observe(self, query)
        if len(batch.phases) == 1:
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs)
        for phase, metadata in enumerate(attn_metadata.kvatlas_phases):
            tokens = batch.tokens(phase).to(query.device)
            if phase:
                batch.make_cuts(phase, self, kv_cache)
                self.do_kv_cache_update(layer, key[tokens], value[tokens], kv_cache, batch.slots[phase])
            out = torch.empty_like(output[tokens])
            super().forward(layer, query[tokens], key[tokens], value[tokens], kv_cache, metadata, out, *args, **kwargs)
            output[tokens] = out
        return output


def serving_cuts(backend: type, layout: type) -> type:
    """The attention backend, for layers that are cut and for others."""
    original, plain = backend.get_builder_cls(), backend.get_impl_cls()

    class CutImpl(Impl, plain):
        pass

    CutImpl.layout = layout

    class Builder(original):
        # A graph of CUDA would replay the block tables of the step that it was captured in.
        @classmethod
        def get_cudagraph_support(cls, vllm_config, kv_cache_spec):
            if isinstance(kv_cache_spec, CutSpec):
                from vllm.v1.attention.backend import AttentionCGSupport

                return AttentionCGSupport.NEVER
            return super().get_cudagraph_support(vllm_config, kv_cache_spec)

        def __init__(self, kv_cache_spec, layer_names, vllm_config, *args, **kwargs):
            super().__init__(kv_cache_spec, layer_names, vllm_config, *args, **kwargs)
            self.cut = kv_cache_spec.cut if isinstance(kv_cache_spec, CutSpec) else None
            if self.cut:
                self.supports_update_block_table = False
                context = vllm_config.compilation_config.static_forward_context
                self.cut_layers = [context[name] for name in layer_names]
                for layer in self.cut_layers:
                    if getattr(layer, "isa", None) == "amx":
                        raise PolicyError("vLLM packs bfloat16 keys for AMX, whose rows cannot be moved: serve with --dtype float32")
                    layer.impl.most_seen = 2 * vllm_config.scheduler_config.max_num_seqs

        def build(self, common_prefix_len, common_attn_metadata, *args, **kwargs):
            # Prompt lengths would mean another kind of attention to vLLM. Batches that warm a model up have none, and
            # stand in the null block.
            common = common_attn_metadata
            block = self.kv_cache_spec.block_size
            if self.cut is None or common.rswa_prefix_lens is None or not common.block_table_tensor[:, 0].any():
                return super().build(common_prefix_len, replace(common, rswa_prefix_lens=None), *args, **kwargs)
            batch = Batch(self.cut, common, block)
            for layer in self.cut_layers:
                batch.make_cuts(0, layer.impl, layer.kv_cache)
            batch.write_slots(common.slot_mapping)
            phases = [super(Builder, self).build(0, seen_by(common, spans, block), *args, **kwargs) for spans in batch.phases]
            phases[0].kvatlas, phases[0].kvatlas_phases = batch, phases
            return phases[0]

    class Backend(backend):
        serves_cuts = True

        @staticmethod
        def get_builder_cls():
            return Builder

        @staticmethod
        def get_impl_cls():
            return CutImpl

    for own, name in ((Builder, original.__name__), (Backend, backend.__name__), (CutImpl, plain.__name__)):
        own.__name__ = own.__qualname__ = f"Cut{name}"
    return Backend
