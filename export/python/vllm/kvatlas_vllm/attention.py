# SPDX-License-Identifier: Apache-2.0
"""How layers that are cut attend. vLLM's own kernels run. Attention is a sum over a set, and positions are in the keys
already, so what is kept of a request may lie anywhere: its rows are moved together, to the end of its blocks, and the
kernels get block tables that begin with the first block that holds any.

Of n tokens the first h are hidden, in the number, not in the place: row l of those that are held lies in slot
h // block * block + l, and the token at position p is written to slot p - h % block."""

from __future__ import annotations

import functools
from collections import OrderedDict
from dataclasses import dataclass, replace

import torch

from .blocks import CutSpec
from .cuts import Cut, Layer
from .pages import Pages
from .settings import PolicyError

# What the bytes of a cache are in vLLM's words for them.
FLOAT8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


@dataclass
class Span:
    """Tokens of a request, at the positions from `first` to end - 1, that see the same tokens before them."""

    row: int  # of the request in the batch
    first: int
    end: int
    token: int  # the place of the first one in the batch
    prompt: int
    hidden: int
    before: int  # how many are hidden when the token before the first one is computed

    def slots(self, table: torch.Tensor, block: int, hidden: int, begin: int, end: int) -> torch.Tensor:
        """Where the rows from `begin` to end - 1 of the request lie while so many tokens are hidden."""
        places = torch.arange(begin, end, device=table.device) + hidden // block * block
        return table[self.row, places // block].long() * block + places % block


def spans_of(cut: Cut, common) -> list[list[Span]]:
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
            phases[phase].append(Span(row, begin, until, token + begin - first, prompt, hidden, before))
            before = hidden
    return phases


class Sequences:
    """Spans as one kernel sees them: a sequence for each span, over blocks from the first one that holds something."""

    def __init__(self, cut: Cut, table: torch.Tensor, block: int, spans: list[Span]):
        self.cut, self.table, self.block, self.spans = cut, table, block, spans
        self.counts = torch.tensor([one.end - one.first for one in spans])
        self.tokens = self.counted([one.token for one in spans])
        self.slots = self.written()

    def counted(self, begin: list[int]) -> torch.Tensor:
        """For the tokens of all spans, numbers that count up from `begin` in each span."""
        before = self.counts.cumsum(0) - self.counts
        return torch.arange(int(self.counts.sum())) + (torch.tensor(begin) - before).repeat_interleave(self.counts)

    def written(self) -> torch.Tensor:
        """Where the keys and values of the tokens go."""
        places = self.counted([one.first - one.hidden % self.block for one in self.spans]).to(self.table.device)
        rows = torch.tensor([one.row for one in self.spans]).repeat_interleave(self.counts).to(self.table.device)
        return self.table[rows, places // self.block].long() * self.block + places % self.block

    def sizes(self) -> tuple[list[int], list[int], list[int]]:
        """Of each sequence its row in the batch, how many tokens are computed, and how many it has then."""
        spans = self.spans
        return [one.row for one in spans], [one.end - one.first for one in spans], [one.end - one.hidden for one in spans]

    def tables(self, columns: int) -> torch.Tensor:
        shift = torch.tensor([one.hidden // self.block for one in self.spans])[:, None]
        rows = torch.tensor([one.row for one in self.spans], device=self.table.device)
        places = (torch.arange(columns)[None, :] + shift).clamp(max=self.table.shape[1] - 1).to(self.table.device)
        return torch.gather(self.table[rows], 1, places)

    def seen_by(self, common):
        """The batch's metadata for these sequences alone."""
        rows, queries, lengths = self.sizes()
        starts = torch.tensor([0, *queries]).cumsum(0, dtype=torch.int32)
        held = torch.tensor(lengths, dtype=torch.int32)
        return replace(
            common,
            num_reqs=len(rows),
            num_actual_tokens=int(starts[-1]),
            query_start_loc=starts.to(self.table.device),
            query_start_loc_cpu=starts,
            seq_lens=held.to(self.table.device),
            seq_lens_cpu_upper_bound=held,
            max_query_len=max(queries),
            max_seq_len=max(lengths),
            block_table_tensor=self.tables(-(-max(lengths) // self.block)).to(self.table.dtype).contiguous(),
            is_prefilling=None if common.is_prefilling is None else common.is_prefilling[rows],
            rswa_prefix_lens=None,
            _num_computed_tokens_cache=None,
            _token_to_req_indices_cache=None,
        )

    def run(self, forward, impl: Impl, query, key, value, cache, output) -> None:
        tokens = self.tokens.to(query.device)
        impl.write(key[tokens], value[tokens], cache, self.slots)
        out = torch.empty_like(output[tokens])
        forward(query[tokens], key[tokens], value[tokens], cache, out)
        output[tokens] = out


class HeadSequences(Sequences):
    """Spans whose heads keep different numbers of tokens: a sequence for each span and KV head, over an array of pages that
    hold one head each."""

    def written(self) -> torch.Tensor:
        slots, self.order, token = [], [], 0
        for one in self.spans:
            count = one.end - one.first
            for head, rows in enumerate(self.pages(one).kept):
                of_head = torch.arange(rows + one.first - one.prompt, rows + one.end - one.prompt)
                slots.append(self.pages(one).slots(self.table[one.row].cpu(), head, of_head))
                self.order.append((torch.arange(token, token + count), head))
            token += count
        return torch.cat(slots)

    def pages(self, span: Span) -> Pages:
        return Pages.of(tuple(self.cut.kept_of_heads(span.prompt)), span.prompt, self.block)

    def sizes(self) -> tuple[list[int], list[int], list[int]]:
        each = [(one, kept) for one in self.spans for kept in self.pages(one).kept]
        return [one.row for one, _ in each], [one.end - one.first for one, _ in each], [kept + one.end - one.prompt for one, kept in each]

    def tables(self, columns: int) -> torch.Tensor:
        numbers = torch.arange(columns)
        each = [(self.pages(one), self.table[one.row].cpu(), head) for one in self.spans for head in range(len(self.pages(one).kept))]
        return torch.stack([pages.numbers(blocks, head, numbers) for pages, blocks, head in each]).to(self.table.device)

    def run(self, forward, impl: Impl, query, key, value, cache, output) -> None:
        tokens, heads = self.tokens.to(query.device), key.shape[1]
        order = torch.cat([token * heads + head for token, head in self.order])

        def apart(rows: torch.Tensor) -> torch.Tensor:
            return rows[tokens].reshape(len(tokens) * heads, -1, key.shape[2])[order].contiguous()

        pages = paged(cache)
        impl.write(apart(key), apart(value), pages, self.slots)
        queries = apart(query)
        out = torch.empty_like(queries)
        forward(queries, apart(key), apart(value), pages, out)
        together = torch.empty_like(out)
        together[order] = out
        output[tokens] = together.view(output[tokens].shape)


def paged(cache: torch.Tensor) -> torch.Tensor:
    """An array of blocks as one of pages, each of one KV head."""
    return cache.view(cache.shape[0] * cache.shape[1], 1, *cache.shape[2:])


def stands_for_nothing(common) -> bool:
    """Whether a batch is one of those that vLLM runs for captures of graphs and on idle ranks: its tokens go nowhere, and
    what else it says is left from other batches."""
    return common.rswa_prefix_lens is None or int(common.slot_mapping[0]) < 0


class Batch:
    """What the layers of one group do with a batch, beside what vLLM's kernels do."""

    def __init__(self, cut: Cut, common, block: int):
        self.cut, self.block, self.table = cut, block, common.block_table_tensor
        self.phases = spans_of(cut, common)
        self.calls: list[tuple[int, Sequences]] = []  # of a kernel, each with its phase
        for phase, spans in enumerate(self.phases):
            for kind in (Sequences, HeadSequences):
                if some := [one for one in spans if (kind is HeadSequences) == (cut.by_head and one.hidden > 0)]:
                    self.calls.append((phase, kind(cut, self.table, block, some)))

    @property
    def is_plain(self) -> bool:
        """Whether vLLM's own call does, with the metadata of the only one."""
        return len(self.calls) == 1 and type(self.calls[0][1]) is Sequences

    def write_slots(self, mapping: torch.Tensor) -> None:
        """Into vLLM's own array, by which a layer's new keys and values are written before it attends."""
        mapping.fill_(-1)
        if self.is_plain:  # otherwise run() writes them, where a later phase has to wait for a cut
            _, sequences = self.calls[0]
            mapping[sequences.tokens.to(mapping.device)] = sequences.slots.to(mapping.dtype)

    def key(self, span: Span) -> int:
        """What names a request in all steps from the first query that is kept of it until its cut: a block that no other
        has. The block of the prompt's last token may not be there yet."""
        place = 0 if self.cut.columns else span.prompt - self.cut.queries
        return int(self.table[span.row, place // self.block])

    def observe(self, impl: Impl, query: torch.Tensor, cache: torch.Tensor) -> None:
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
                layer = impl.held(cache, span.slots(self.table, self.block, 0, 0, end), None)
                impl.add_columns(self.key(span), mine, first, span.prompt, layer)
            else:
                impl.keep_queries(self.key(span), mine, first - begin, cut.queries)

    def make_cuts(self, phase: int, impl: Impl, cache: torch.Tensor) -> None:
        """Drops what is due before the phase's tokens are computed."""
        for span in self.phases[phase]:
            if span.hidden > span.before:
                impl.cut(self, span, cache)


class Impl:
    """Mixed into vLLM's attention of a layer that is cut."""

    layout: type
    scales: tuple[float, float]  # which stored keys and values are multiplied by where they are in FP8

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

    def add_columns(self, key: int, queries: torch.Tensor, first: int, prompt: int, layer: Layer) -> None:
        seen = self.kept_seen(key, (len(layer.keys), prompt), torch.float64, queries.device, first == 0)
        for begin in range(0, queries.shape[1], 256):
            rows = layer.attention(queries[:, begin : begin + 256], first + begin).sum(1, dtype=torch.float64)
            seen[:, : rows.shape[1]] += rows.view(len(layer.keys), -1, rows.shape[1]).mean(1)

    def cut(self, batch: Batch, span: Span, cache: torch.Tensor) -> None:
        """Drops what is due of the request before the span's first token is computed."""
        cut, table, block = batch.cut, batch.table, batch.block
        slots = span.slots(table, block, span.before, 0, span.first - span.before)
        seen = self.seen.pop(batch.key(span)) if cut.queries or cut.columns else None
        rows = cut.choose(self.held(cache, slots, seen), span.first, span.prompt)
        if not cut.by_head:
            target = span.slots(table, block, span.hidden, 0, span.first - span.hidden)
            self.layout(cache).move(slots[rows.to(slots.device)], target)
            return
        pages = Pages.of(tuple(cut.kept_of_heads(span.prompt)), span.prompt, block)
        source, target = [], []
        for head, kept in enumerate(rows):
            held = slots[kept.to(slots.device)]
            source.append((held // block * len(rows) + head) * block + held % block)
            target.append(pages.slots(table[span.row].cpu(), head, torch.arange(len(kept))).to(slots.device))
        self.layout(paged(cache)).move(torch.cat(source)[None], torch.cat(target))

    def held(self, cache: torch.Tensor, slots: torch.Tensor, seen: torch.Tensor | None) -> Layer:
        keys, values = self.layout(cache).keys_and_values(slots)
        if kind := FLOAT8.get(self.kv_cache_dtype):
            keys, values = keys.view(kind).float() * self.scales[0], values.view(kind).float() * self.scales[1]
        return Layer(keys.float(), values.float(), seen, self.scale, getattr(self, "logits_soft_cap", None), self.sinks)

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs):
        batch: Batch | None = getattr(attn_metadata, "kvatlas", None)
        if batch is None or batch.is_plain:
            if batch is not None:
                batch.observe(self, query, kv_cache)
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs)
        self.write = functools.partial(self.do_kv_cache_update, layer)
        done = 0
        for (phase, sequences), metadata in zip(batch.calls, attn_metadata.kvatlas_calls):
            if phase > done:
                batch.make_cuts(phase, self, kv_cache)
                done = phase

            def kernel(queries, keys, values, cache, out, metadata=metadata):
                super(Impl, self).forward(layer, queries, keys, values, cache, metadata, out, *args, **kwargs)

            sequences.run(kernel, self, query, key, value, kv_cache, output)
            if phase == 0 and type(sequences) is Sequences:
                batch.observe(self, query, kv_cache)
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
                    if self.cut.by_head and (layer.impl.sinks is not None or not layout.counts_of_heads):
                        raise PolicyError(f"{layer.layer_name}: KV heads with numbers of tokens of their own are served by "
                                          "vLLM's attention on CPUs alone, and without sinks")  # fmt: skip
                    if getattr(layer, "isa", None) == "amx":
                        raise PolicyError("vLLM packs bfloat16 keys for AMX, whose rows cannot be moved: serve with --dtype float32")
                    layer.impl.scales = layer._k_scale_float, layer._v_scale_float
                    layer.impl.most_seen = 2 * vllm_config.scheduler_config.max_num_seqs

        def build(self, common_prefix_len, common_attn_metadata, *args, **kwargs):
            # Prompt lengths would mean another kind of attention to vLLM.
            common = common_attn_metadata
            block = self.kv_cache_spec.block_size
            if self.cut is None or stands_for_nothing(common):
                return super().build(common_prefix_len, replace(common, rswa_prefix_lens=None), *args, **kwargs)
            batch = Batch(self.cut, common, block)
            for layer in self.cut_layers:
                batch.make_cuts(0, layer.impl, layer.kv_cache)
            batch.write_slots(common.slot_mapping)
            calls = [self.build_for(sequences, common, *args, **kwargs) for _, sequences in batch.calls]
            calls[0].kvatlas, calls[0].kvatlas_calls = batch, calls
            return calls[0]

        def build_for(self, sequences, common, *args, **kwargs):
            heads = {name: getattr(self, name, None) for name in layout.counts_of_heads}
            if isinstance(sequences, HeadSequences):
                for name, count in zip(heads, (self.num_heads // self.num_kv_heads, 1)):
                    setattr(self, name, count)
            try:
                return super().build(0, sequences.seen_by(common), *args, **kwargs)
            finally:
                for name, count in heads.items():
                    setattr(self, name, count)

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
