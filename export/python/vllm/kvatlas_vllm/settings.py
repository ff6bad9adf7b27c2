# SPDX-License-Identifier: Apache-2.0
"""The policy as vLLM's configuration holds it, and what of vLLM it works with."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass

EXPORT = "'kvatlas export --to vllm'"
NAME = "kvatlas"  # the member of vLLM's additional configuration
MOST = 1 << 40  # tokens
EXTENSION = "kvatlas_vllm.worker.KvatlasPolicy"  # the exported file names it beside the policy


class PolicyError(ValueError):
    """A policy that cannot be read, or that cannot be served with this model or these options."""


@dataclass(frozen=True)
class Settings:
    """Which layers are lazy. Once the prompt is read, a lazy layer keeps its first `initial` tokens, its last `recent`
    ones, and what is generated; with `rolling`, the last `recent` tokens of all."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    lazy: tuple[bool, ...]
    initial: int
    recent: int
    rolling: bool

    def kept_first(self, block: int) -> int:
        """How many of the first blocks are kept: those with an initial token."""
        return -(-self.initial // block)

    def window_begin(self, position: int, prompt: int, block: int) -> int:
        """The first block of the window that a generated token at this position sees."""
        return max(0, (position + 1 if self.rolling else prompt) - self.recent) // block


def read(additional_config, extension: str = "") -> Settings | None:
    """None if the configuration names no policy; with the worker extension of the exported file it has to name one."""
    outer = additional_config if isinstance(additional_config, dict) else {}
    given = outer.get(NAME)
    if any(isinstance(one, dict) and _shown(one.get("schema")).startswith("'kvatlas.") for one in (outer, given)):
        raise PolicyError(f"additional-config: found a policy document itself; {EXPORT} makes of it what is read here")
    if NAME not in outer:
        if extension == EXTENSION:
            raise PolicyError(f"additional-config.{NAME}: missing, though the worker extension of a policy is named")
        return None
    if not isinstance(given, dict):
        raise PolicyError(f"additional-config.{NAME}: expected an object, as {EXPORT} writes it")
    known = {"model", "lazy_layers", "initial", "recent", "rolling"}
    for key in sorted(set(given) ^ known, key=_shown):
        what = "missing" if key in known else "unknown"
        raise PolicyError(f"additional-config.{NAME}: {_shown(key)} is {what}; export the policy anew")
    model = given["model"]
    if not isinstance(model, dict) or set(model) != {"layers", "heads", "kv_heads", "head_dim"}:
        raise PolicyError(f"additional-config.{NAME}.model: expected layers, heads, kv_heads and head_dim")
    shape = {key: _count(model[key], f"model.{key}", 1, 1 << 16) for key in model}
    lazy = given["lazy_layers"]
    if not isinstance(lazy, list) or not all(isinstance(one, bool) for one in lazy) or len(lazy) != shape["layers"]:
        raise PolicyError(f"additional-config.{NAME}.lazy_layers: expected true or false for each layer of the model")
    if not any(lazy):
        raise PolicyError(f"additional-config.{NAME}.lazy_layers: no layer is lazy, and nothing would be saved")
    if not isinstance(given["rolling"], bool):
        raise PolicyError(f"additional-config.{NAME}.rolling: expected true or false")
    initial, recent = (_count(given[key], key, least, MOST) for key, least in (("initial", 0), ("recent", 1)))
    return Settings(**shape, lazy=tuple(lazy), initial=initial, recent=recent, rolling=given["rolling"])


def _count(value, place: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PolicyError(f"additional-config.{NAME}.{place}: found {_shown(value)}, expected {least} to {most}")
    return value


def _shown(value) -> str:
    """In one short line, whatever it is."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "an enormous number"


def check(settings: Settings, config) -> None:
    """Raises PolicyError for a model, or for options of vLLM, that the policy is not served with. `config` is vLLM's
    whole configuration."""
    model, parallel, cache = config.model_config, config.parallel_config, config.cache_config
    text = model.hf_text_config
    for name, what, count in (
        ("layers", "layers", getattr(text, "num_hidden_layers", 0)),
        ("heads", "heads", getattr(text, "num_attention_heads", 0)),
        ("kv_heads", "KV heads", model.get_total_num_kv_heads()),
        ("head_dim", "numbers a head", model.get_head_size()),
    ):
        if count != getattr(settings, name):
            raise PolicyError(
                f"the policy is for a model of {getattr(settings, name)} {what}, and {model.model} has {count}: "
                "export it for this model"
            )
    # Where the model does not name each layer's kind, a window is that of all layers.
    same = "sliding_attention" if cache.sliding_window else "full_attention"
    kinds = getattr(text, "layer_types", None) or [same] * settings.layers
    for layer, (lazy, kind) in enumerate(zip(settings.lazy, kinds)):
        if lazy and kind not in ("attention", "full_attention"):
            raise PolicyError(f"layer {layer} of {model.model} has {kind} and cannot be lazy: export without it")
    refused = {
        "pipeline parallelism": parallel.pipeline_parallel_size > 1,
        "context parallelism": max(parallel.decode_context_parallel_size, parallel.prefill_context_parallel_size) > 1,
        "speculative decoding": config.speculative_config is not None,
        "a KV connector": config.kv_transfer_config is not None,
        "micro batches (DBO)": parallel.use_ubatching,
        "--disable-hybrid-kv-cache-manager": bool(config.scheduler_config.disable_hybrid_kv_cache_manager),
        f"--kv-cache-dtype {cache.cache_dtype}": cache.cache_dtype.startswith(("turboquant", "nvfp4", "ultraquant")),
        "a model that is no decoder": model.is_encoder_decoder or model.runner_type != "generate",
        "a model with multi-head latent attention": model.use_mla,
    }
    for what, is_used in refused.items():
        if is_used:
            raise PolicyError(f"lazy layers are not served with {what}: leave it out, or serve without the policy")
