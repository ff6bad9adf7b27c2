# SPDX-License-Identifier: Apache-2.0
"""What a layer that is cut holds: its kind of KV cache, and the manager that frees the blocks of what was dropped.

How much is dropped follows from the numbers of tokens alone, so the scheduler and the workers, which may be steps apart,
need not tell each other."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from dataclasses import dataclass

from vllm.utils.math_utils import cdiv
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, replace_as

from .cuts import Cut

# The request whose prefix is looked for in the cache: how long its prompt is.
looked_up = contextvars.ContextVar("kvatlas_looked_up", default=0)


# No FullAttentionSpec: vLLM would merge the layers with full ones into one group of layers.
@dataclass(frozen=True, kw_only=True)
class CutSpec(AttentionSpec):
    cut: Cut

    def max_memory_usage_bytes(self, vllm_config) -> int:
        # While the prompt is read, all of it is held.
        return cdiv(vllm_config.model_config.max_model_len, self.block_size) * self.page_size_bytes

    def is_uniform_with_collection(self, kv_cache_specs) -> bool:
        return all(isinstance(one, CutSpec) and one.cut == self.cut for one in kv_cache_specs.values())

    @classmethod
    def of(cls, spec: FullAttentionSpec, cut: Cut) -> CutSpec:
        return replace_as(spec, cls, drop=("sliding_window", "attention_chunk_size", "non_causal"), cut=cut)

    def as_full(self) -> FullAttentionSpec:
        return replace_as(self, FullAttentionSpec, drop=("cut",))


class CutManager(FullAttentionManager):
    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Frees what the last step has moved. The cut that this step makes still reads the blocks."""
        if num_prompt_tokens is None:
            return
        freed = self.kv_cache_spec.cut.freed(processed_computed_tokens - 1, num_prompt_tokens, self.block_size)
        self._remove_blocks_in_range(request_id, 0, freed)

    def cache_blocks(self, request, num_tokens: int, *args, **kwargs) -> None:
        """Only blocks of the prompt serve other requests, for what is generated has seen less than a prompt would, and
        only those that no cut writes to."""
        super().cache_blocks(request, min(num_tokens, self.shared(self.kv_cache_spec, request.num_prompt_tokens)), *args, **kwargs)

    @staticmethod
    def shared(spec: CutSpec, prompt: int) -> int:
        shared = spec.cut.shared(prompt, spec.block_size)
        return prompt if shared is None else min(prompt, shared)

    @classmethod
    def find_longest_cache_hit(cls, *, max_length: int, kv_cache_spec: CutSpec, **others) -> tuple[tuple[Sequence, ...], int]:
        most = min(max_length, cls.shared(kv_cache_spec, looked_up.get()))
        return super().find_longest_cache_hit(max_length=most, kv_cache_spec=kv_cache_spec.as_full(), **others)
