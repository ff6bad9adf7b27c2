# SPDX-License-Identifier: Apache-2.0
"""vLLM's attention backends that serve lazy layers, by the names that it looks them up under."""


def __getattr__(name: str):
    from .attention import serving_lazy_layers

    if name == "Cpu":
        from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend as backend
    elif name == "Flash":
        from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend as backend
    else:
        raise AttributeError(name)
    globals()[name] = serving_lazy_layers(backend)
    return globals()[name]
