# SPDX-License-Identifier: Apache-2.0
"""The policy as vLLM's configuration holds it, and what of vLLM it works with."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, fields

from .cuts import METHODS, Cut

EXPORT = "'kvatlas export --to vllm'"
NAME = "kvatlas"  # the member of vLLM's additional configuration
EXTENSION = "kvatlas_vllm.worker.KvatlasPolicy"  # the exported file names it beside the policy


class PolicyError(ValueError):
    """A policy that cannot be read, or that cannot be served with this model or these options."""


@dataclass(frozen=True)
class Settings:
    """The model that the policy is for, and how each of its layers is cut: None if it stays whole."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    cuts: tuple[Cut | None, ...]


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
    _check_members(given, {"model", "cuts"}, NAME)
    model = given["model"]
    _check_members(model, {"layers", "heads", "kv_heads", "head_dim"}, f"{NAME}.model")
    shape = {key: _count(model[key], f"model.{key}", 1, 1 << 16) for key in model}
    cuts: list[Cut | None] = [None] * shape["layers"]
    rows = given["cuts"]
    if not isinstance(rows, list) or not rows:
        raise PolicyError(f"additional-config.{NAME}.cuts: expected a list of what is cut, at least of one layer")
    for number, row in enumerate(rows):
        place = f"cuts[{number}]"
        _check_members(row, None, f"{NAME}.{place}")
        cut = _cut(row, place)
        for one in fields(cut):
            value = getattr(cut, one.name)
            if isinstance(value, tuple) and len(value) != shape["kv_heads"]:
                what = f"found {len(value)} entries, expected {shape['kv_heads']}, one for each KV head"
                raise PolicyError(f"additional-config.{NAME}.{place}.{one.name}: {what}")
        layers = row["layers"]
        if not isinstance(layers, list) or not layers:
            raise PolicyError(f"additional-config.{NAME}.{place}.layers: expected numbers of layers")
        for layer in layers:
            if type(layer) is not int or not 0 <= layer < shape["layers"]:
                what = f"found {_shown(layer)}, expected a layer of the model, 0 to {shape['layers'] - 1}"
                raise PolicyError(f"additional-config.{NAME}.{place}.layers: {what}")
            if cuts[layer] is not None:
                raise PolicyError(f"additional-config.{NAME}.{place}.layers: layer {layer} is cut twice")
            cuts[layer] = cut
    return Settings(**shape, cuts=tuple(cuts))


def _check_members(given, known: set[str] | None, place: str) -> None:
    if not isinstance(given, dict):
        raise PolicyError(f"additional-config.{place}: expected an object, as {EXPORT} writes it")
    for key in sorted(set(given) ^ known if known else (), key=_shown):
        what = "missing" if key in known else "unknown"
        raise PolicyError(f"additional-config.{place}: {_shown(key)} is {what}; export the policy anew")


def _cut(row: dict, place: str) -> Cut:
    method = row.get("method")
    if not isinstance(method, str) or method not in METHODS:
        raise PolicyError(f"additional-config.{NAME}.{place}.method: found {_shown(method)}, expected one of {', '.join(METHODS)}")
    settings = fields(METHODS[method])
    _check_members(row, {"layers", "method", *(one.name for one in settings)}, f"{NAME}.{place}")
    for one in settings:
        value = row[one.name]
        if not one.metadata["takes"](value):
            what = f"found {_shown(value)}, expected {one.metadata['expected']}"
            raise PolicyError(f"additional-config.{NAME}.{place}.{one.name}: {what}")
    values = {one.name: row[one.name] for one in settings}
    cut = METHODS[method](**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
    if why := cut.wrong():
        raise PolicyError(f"additional-config.{NAME}.{place}: {why}")
    return cut


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
    parts = parallel.tensor_parallel_size
    for layer, (cut, kind) in enumerate(zip(settings.cuts, kinds)):
        if cut is None:
            continue
        if kind not in ("attention", "full_attention"):
            raise PolicyError(f"layer {layer} of {model.model} has {kind} and cannot be cut: export without it")
        if cut.reads and cache.cache_dtype.startswith("fp8") and config.device_config.device_type != "cpu":
            what = f"which --kv-cache-dtype {cache.cache_dtype} rounds, and that is served on CPUs alone: leave it out"
            raise PolicyError(f"layer {layer} is cut by what its keys say, {what}")
        if parts > 1 and cut.together:
            raise PolicyError(f"layer {layer} is cut by all heads together, which --tensor-parallel-size {parts} takes apart")
        if parts > settings.kv_heads and cut.queries:
            raise PolicyError(f"--tensor-parallel-size {parts} gives several workers the same KV head: at most {settings.kv_heads}")
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
        "a model whose layers read the caches of others": bool(getattr(text, "num_kv_shared_layers", 0)),
    }
    for what, is_used in refused.items():
        if is_used:
            raise PolicyError(f"policies are not served with {what}: leave it out, or serve without the policy")
