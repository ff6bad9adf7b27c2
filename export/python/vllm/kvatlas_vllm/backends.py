# SPDX-License-Identifier: Apache-2.0
"""vLLM's attention backends that serve layers that are cut, by the names that it looks them up under."""


def __getattr__(name: str):
    from . import layouts
    from .attention import serving_cuts

    if name == "Cpu":
        from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend as backend

        layout = layouts.KeysTransposed
    elif name == "Flash":
        from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend as backend

        layout = layouts.Joined
    else:
        raise AttributeError(name)
    globals()[name] = serving_cuts(backend, layout)
    return globals()[name]
