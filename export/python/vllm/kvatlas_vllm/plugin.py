# SPDX-License-Identifier: Apache-2.0
"""What vLLM's entry point calls in each of its processes."""

from __future__ import annotations

import functools
import sys

from .settings import PolicyError, check, read

registered = False


def register() -> None:
    """Registers the kind of cache of layers that are cut, and the attention backends that serve it. Three functions of
    vLLM are wrapped, for it tells no extension which layer it asks about, no kind of cache whose prefix it looks for, and
    nobody when a configuration is complete."""
    global registered
    if registered:
        return
    registered = True
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.attention import Attention
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

    from .blocks import CutManager, CutSpec

    KVCacheSpecRegistry._ensure_registered()
    KVCacheSpecRegistry.register(CutSpec, CutManager, uniform_type_base_spec=CutSpec)
    register_backend(AttentionBackendEnum.CPU_ATTN, "kvatlas_vllm.backends.Cpu")
    register_backend(AttentionBackendEnum.FLASH_ATTN, "kvatlas_vllm.backends.Flash")
    EngineArgs.create_engine_config = _checked(EngineArgs.create_engine_config)
    Attention.get_kv_cache_spec = _with_cuts(Attention.get_kv_cache_spec)
    KVCacheManager.get_computed_blocks = _for_the_prompt(KVCacheManager.get_computed_blocks)


def _checked(original):
    """What cannot be served ends here, before any process is started or weight is read: a server with one sentence,
    LLM() with an exception."""

    @functools.wraps(original)
    def create_engine_config(self, *args, **kwargs):
        from vllm.usage.usage_lib import UsageContext

        try:
            settings = read(self.additional_config, self.worker_extension_cls)
            config = original(self, *args, **kwargs)
            if settings is not None:
                check(settings, config)
        except PolicyError as error:
            if UsageContext.OPENAI_API_SERVER in (*args, *kwargs.values()):
                sys.exit(f"kvatlas: {error}")
            raise
        return config

    return create_engine_config


def _for_the_prompt(original):
    @functools.wraps(original)
    def get_computed_blocks(self, request, *args, **kwargs):
        from .blocks import looked_up

        before = looked_up.set(request.num_prompt_tokens)
        try:
            return original(self, request, *args, **kwargs)
        finally:
            looked_up.reset(before)

    return get_computed_blocks


def _with_cuts(original):
    @functools.wraps(original)
    def get_kv_cache_spec(self, vllm_config):
        from vllm.model_executor.models.utils import extract_layer_index
        from vllm.v1.kv_cache_interface import FullAttentionSpec

        from .blocks import CutSpec

        spec = original(self, vllm_config)
        settings = read(vllm_config.additional_config)
        if settings is None or spec is None:
            return spec
        # With this set, the model runner hands prompt lengths to the backends. It stands for another kind of
        # attention, which ours leaves out again.
        vllm_config.model_config.model_arch_config.rswa_window = 1
        backend = self.get_attn_backend()
        if not getattr(backend, "serves_cuts", False):
            raise PolicyError(
                f"policies are served by vLLM's attention on CPUs and by FlashAttention, not by {backend.get_name()}: "
                "choose --attention-backend"
            )
        cut = settings.cuts[extract_layer_index(self.layer_name)]
        if cut is None:
            return spec
        if type(spec) is not FullAttentionSpec:
            raise PolicyError(f"{self.layer_name} has a window of the model's own and cannot be cut: export without it")
        if getattr(self.impl, "alibi_slopes", None) is not None:
            raise PolicyError(f"{self.layer_name} tells positions by their places in the cache (ALiBi) and cannot be cut")
        return CutSpec.of(spec, cut)

    return get_kv_cache_spec
