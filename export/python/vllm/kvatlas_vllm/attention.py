# SPDX-License-Identifier: Apache-2.0
"""What a lazy layer attends to. vLLM's own kernels run, over block tables that leave out what was freed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from .blocks import LazySpec
from .settings import Settings


@dataclass
class Rows:
    """Queries that are handed to the kernel as one sequence: neighbouring tokens of a request, and how many blocks
    behind its first ones they do not see."""

    request: np.ndarray
    begin: np.ndarray  # positions in the request
    end: np.ndarray
    hidden: np.ndarray  # blocks


def rows_of(settings: Settings, first: np.ndarray, end: np.ndarray, prompt: np.ndarray, block: int) -> Rows:
    """The rows of requests whose tokens from `first` to `end` are computed. Tokens of the prompt see all before them.
    Generated ones do not; most often there is one of them, but a preempted request has many to compute anew."""
    rows = []
    kept_first = settings.kept_first(block)
    for request, (position, stop, length) in enumerate(zip(first.tolist(), end.tolist(), prompt.tolist())):
        until = min(max(position, length), stop)
        if until > position or position == stop:
            rows.append((request, position, until, 0))
        position = until
        while position < stop:
            window = settings.window_begin(position, length, block)
            # With a rolling window, up to the token that no longer sees the window's first block.
            until = min(stop, (window + 1) * block + settings.recent - 1) if settings.rolling else stop
            rows.append((request, position, until, max(0, window - kept_first)))
            position = until
    return Rows(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)


def without_hidden(common, settings: Settings, block: int):
    """The metadata of a batch, as the lazy layers see it."""
    starts = common.query_start_loc_cpu[: common.num_reqs + 1].numpy().astype(np.int64)
    end = common.seq_lens[: common.num_reqs].cpu().numpy().astype(np.int64)
    prompt = common.rswa_prefix_lens[: common.num_reqs].cpu().numpy().astype(np.int64)
    rows = rows_of(settings, end - np.diff(starts), end, prompt, block)
    queries, lengths = rows.end - rows.begin, rows.end - rows.hidden * block
    table, device = common.block_table_tensor, common.block_table_tensor.device
    columns = np.arange(max(1, -(-int(lengths.max(initial=1)) // block)), dtype=np.int64)[None, :]
    columns = columns + np.where(columns >= settings.kept_first(block), rows.hidden[:, None], 0)
    columns = torch.from_numpy(np.minimum(columns, table.shape[1] - 1)).to(device)
    starts = torch.from_numpy(np.concatenate([[0], np.cumsum(queries)]).astype(np.int32))
    request = torch.from_numpy(rows.request)
    return replace(
        common,
        num_reqs=len(queries),
        query_start_loc=starts.to(device),
        query_start_loc_cpu=starts,
        seq_lens=torch.from_numpy(lengths.astype(np.int32)).to(device),
        seq_lens_cpu_upper_bound=torch.from_numpy(lengths.astype(np.int32)),
        max_query_len=int(queries.max(initial=1)),
        max_seq_len=int(lengths.max(initial=1)),
        block_table_tensor=torch.gather(table[request.to(device)], 1, columns).to(table.dtype).contiguous(),
        is_prefilling=None if common.is_prefilling is None else common.is_prefilling[request],
        rswa_prefix_lens=None,
        _num_computed_tokens_cache=None,
        _token_to_req_indices_cache=None,
    )


def serving_lazy_layers(backend: type) -> type:
    """The attention backend, for full and for lazy layers."""
    original = backend.get_builder_cls()

    class Builder(original):
        # A graph of CUDA would replay the block tables of the step that it was captured in.
        @classmethod
        def get_cudagraph_support(cls, vllm_config, kv_cache_spec):
            if isinstance(kv_cache_spec, LazySpec):
                from vllm.v1.attention.backend import AttentionCGSupport

                return AttentionCGSupport.NEVER
            return super().get_cudagraph_support(vllm_config, kv_cache_spec)

        def __init__(self, kv_cache_spec, *args, **kwargs):
            super().__init__(kv_cache_spec, *args, **kwargs)
            self.lazy = kv_cache_spec.settings if isinstance(kv_cache_spec, LazySpec) else None
            if self.lazy:
                self.supports_update_block_table = False

        def build(self, common_prefix_len, common_attn_metadata, *args, **kwargs):
            if self.lazy:
                common = without_hidden(common_attn_metadata, self.lazy, self.kv_cache_spec.block_size)
                return super().build(0, common, *args, **kwargs)
            # Prompt lengths would mean another kind of attention to it.
            common = replace(common_attn_metadata, rswa_prefix_lens=None)
            return super().build(common_prefix_len, common, *args, **kwargs)

    class Backend(backend):
        serves_lazy_layers = True

        @staticmethod
        def get_builder_cls():
            return Builder

    Builder.__name__ = Builder.__qualname__ = f"Lazy{original.__name__}"
    Backend.__name__ = Backend.__qualname__ = f"Lazy{backend.__name__}"
    return Backend
