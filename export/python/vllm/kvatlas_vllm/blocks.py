# SPDX-License-Identifier: Apache-2.0
"""What a lazy layer holds: its kind of KV cache, and the manager that frees the blocks between its first tokens and
its window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vllm.utils.math_utils import cdiv
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, replace_as

from .settings import Settings


# No FullAttentionSpec: vLLM would merge lazy layers with full ones into one group of layers.
@dataclass(frozen=True, kw_only=True)
class LazySpec(AttentionSpec):
    settings: Settings

    def max_memory_usage_bytes(self, vllm_config) -> int:
        # While the prompt is read, all of it is held.
        return cdiv(vllm_config.model_config.max_model_len, self.block_size) * self.page_size_bytes

    @classmethod
    def of(cls, spec: FullAttentionSpec, settings: Settings) -> LazySpec:
        drop = ("sliding_window", "attention_chunk_size", "non_causal")
        return replace_as(spec, cls, drop=drop, settings=settings)

    def as_full(self) -> FullAttentionSpec:
        return replace_as(self, FullAttentionSpec, drop=("settings",))


class LazyManager(FullAttentionManager):
    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Frees what no token from `processed_computed_tokens` on will see. What is still in the prompt sees all of
        it, also when a preempted request is computed anew."""
        if num_prompt_tokens is None or processed_computed_tokens < num_prompt_tokens:
            return
        settings = self.kv_cache_spec.settings
        begin = settings.kept_first(self.block_size)
        end = settings.window_begin(processed_computed_tokens, num_prompt_tokens, self.block_size)
        self._remove_blocks_in_range(request_id, begin, end)

    def cache_blocks(self, request, num_tokens: int, *args, **kwargs) -> None:
        """Only blocks of the prompt serve other requests: what is generated has seen less than a prompt would."""
        super().cache_blocks(request, min(num_tokens, request.num_prompt_tokens), *args, **kwargs)

    @classmethod
    def find_longest_cache_hit(cls, *, kv_cache_spec: LazySpec, **others) -> tuple[tuple[Sequence, ...], int]:
        return super().find_longest_cache_hit(kv_cache_spec=kv_cache_spec.as_full(), **others)
