# SPDX-License-Identifier: Apache-2.0
"""What vLLM's entry point calls in each of its processes."""

from __future__ import annotations

import functools
import sys

from .settings import PolicyError, check, read

registered = False


def register() -> None:
    """Registers the lazy layers' kind of cache and the attention backends that serve it. vLLM tells no extension which
    layer it asks about, and no backend how long a prompt is, so two of its functions are wrapped."""
    global registered
    if registered:
        return
    registered = True
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.attention import Attention
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

    from .blocks import LazyManager, LazySpec

    KVCacheSpecRegistry._ensure_registered()
    KVCacheSpecRegistry.register(LazySpec, LazyManager, uniform_type_base_spec=LazySpec)
    register_backend(AttentionBackendEnum.CPU_ATTN, "kvatlas_vllm.backends.Cpu")
    register_backend(AttentionBackendEnum.FLASH_ATTN, "kvatlas_vllm.backends.Flash")
    EngineArgs.create_engine_config = _checked(EngineArgs.create_engine_config)
    Attention.get_kv_cache_spec = _with_lazy_layers(Attention.get_kv_cache_spec)


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


def _with_lazy_layers(original):
    @functools.wraps(original)
    def get_kv_cache_spec(self, vllm_config):
        from vllm.model_executor.models.utils import extract_layer_index
        from vllm.v1.kv_cache_interface import FullAttentionSpec

        from .blocks import LazySpec

        spec = original(self, vllm_config)
        settings = read(vllm_config.additional_config)
        if settings is None or spec is None:
            return spec
        # With this set, the model runner hands prompt lengths to the backends. It stands for another kind of
        # attention, which ours leaves out again.
        vllm_config.model_config.model_arch_config.rswa_window = settings.recent
        backend = self.get_attn_backend()
        if not getattr(backend, "serves_lazy_layers", False):
            raise PolicyError(
                f"lazy layers are served by vLLM's attention on CPUs and by FlashAttention, not by {backend.get_name()}: "
                "choose --attention-backend"
            )
        if not settings.lazy[extract_layer_index(self.layer_name)]:
            return spec
        if type(spec) is not FullAttentionSpec:
            raise PolicyError(f"{self.layer_name} has a window of the model's own and cannot be lazy: export without it")
        return LazySpec.of(spec, settings)

    return get_kv_cache_spec
