# SPDX-License-Identifier: Apache-2.0
"""`kvatlas.capture`: a profile of a transformers model where it already is, as docs/python.md describes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from .errors import KvatlasError
from .fingerprints import Fnv1a, of_model
from .layer_statistics import Attended, SampleStatistics
from .profile import Profile
from .profile_writer import Prompt, write_sample
from .program import Option, run
from .prompts import prompts_of
from .recording import Recorder, attention_recorded, output_difference
from .token_texts import token_bytes

_LOG = logging.getLogger("kvatlas")
_TAKEN = {"lazy", "js", "scores", "kept", "norms", "next", "columns", "maps"}
_AT_ONCE = 200  # files that are open when they are joined
# How far a layer's output may be from what its recorded scores give, by the number of bits of its numbers.
_MOST_OFF = {torch.float32: 1e-3, torch.float64: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def capture(
    model: Any,
    tokenizer: Any = None,
    prompts: str | os.PathLike | Sequence[Any] | None = None,
    *,
    tasks: str | Sequence[str] | None = None,
    out: str | os.PathLike,
    lengths: Sequence[int] = (1024,),
    depths: Sequence[float] = (0.1, 0.5, 0.9),
    seeds: int = 3,
    seed: int = 0,
    chat: bool = False,
    max_tokens: int = 0,
    resume: bool = False,
    force: bool = False,
    fingerprint: str = "",
    **settings: Option,
) -> Profile:
    """Takes a profile of a transformers model in memory, on whatever devices it is, and returns it opened.

    prompts: texts, lists of token ids, objects as lines of a JSONL file hold them (text or tokens, answers, id, task …),
    or such a file; or tasks: names as `kvatlas tasks` lists them, made at each length, depth and seed. Each sample is
    written when it is done: after a kill the same call with resume=True goes on. settings: those of `kvatlas profile`
    under "Statistics", with "_" for "-", such as budgets=[64, 128] or map_samples=0."""
    path = pathlib.Path(out)
    given = list(prompts_of(prompts, tasks, tokenizer, lengths, depths, seeds, seed, chat, max_tokens))
    if not given:
        raise KvatlasError("there are no prompts to capture: give prompts= or tasks=")
    plan: dict[str, Any] = {"prompts": _plan_record(given, tasks, chat, max_tokens), "samples": len(given)}
    session = _Session(model, tokenizer, plan, fingerprint, settings)
    with _Parts(path, resume, force) as parts:
        with session.recorded():
            session.first_look(given[0])
            parts.require_same(session.description["capture"], plan["prompts"], session.model_record)
            for index, prompt in enumerate(given):
                if index in parts.done:
                    continue
                arrays = session.sample(index, prompt)
                write_sample(parts.part(index), session.description, session.model_record, plan, index, prompt, arrays)
                _LOG.info("%s: sample %d of %d", path, index + 1, len(given))
    parts.join()
    return Profile(path)


def _plan_record(given: Sequence[Prompt], tasks, chat: bool, max_tokens: int) -> dict[str, Any]:
    print_of = Fnv1a()
    for prompt in given:
        print_of.number(len(prompt.tokens))
        for token in prompt.tokens:
            print_of.number(token)
    record: dict[str, Any] = {"chat": "its own" if chat else "none", "fingerprint": print_of.hex(), "prompts": len(given)}
    record["from"] = "tasks" if tasks is not None else "Python"
    if max_tokens:
        record["max_tokens"] = max_tokens
    return record


# ---- the model


@dataclass
class _Layer:
    """What the first prompt shows of a layer."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    keys: int = 0  # where its keys lie in memory
    window: int = 0


@dataclass
class _Held:
    """Keys and values of the prompt, for the generated tokens: a cache may keep those of a window alone."""

    key: torch.Tensor
    value: torch.Tensor


@dataclass
class _Session:
    """The forward passes over prompts, and what is taken of them."""

    model: Any
    tokenizer: Any
    plan: dict[str, Any]
    given_fingerprint: str
    settings: dict[str, Option]
    description: dict[str, Any] = field(default_factory=dict)
    model_record: dict[str, Any] = field(default_factory=dict)
    layers: dict[int, _Layer] = field(default_factory=dict)  # by the model's own numbers, ascending

    def __post_init__(self) -> None:
        self.config: Any = getattr(self.model, "config", None)
        if self.config is None or not hasattr(self.model, "forward"):
            raise KvatlasError(f"{type(self.model).__name__} is no transformers model: it has no config")
        if getattr(self.config, "is_encoder_decoder", False):
            raise KvatlasError(f"{type(self.model).__name__} has an encoder; a profile is of a decoder alone")
        self.config = self.config.get_text_config(decoder=True)
        if self.model.training:
            raise KvatlasError("the model is in training mode, in which dropout changes what it attends to: call model.eval()")
        self.recorder = Recorder(self.model, self.take)
        self.phase: Callable[[int, Attended], None] = lambda layer, given: None
        self.held: dict[int, _Held] = {}

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        with attention_recorded(self.recorder):
            yield

    def take(self, number: int, module: torch.nn.Module, given: Attended, out: torch.Tensor) -> None:
        self.last_out = out
        self.phase(number, given)

    # ---- forward passes

    def run(self, tokens: Sequence[int], **more: Any) -> Any:
        device = self.model.get_input_embeddings().weight.device
        ids = torch.tensor([list(tokens)], device=device)
        with torch.no_grad():
            return self.model(input_ids=ids, use_cache=True, **more)

    def logits_of(self, out: Any) -> torch.Tensor:
        logits = out.logits[0, -1].float()
        if not bool(torch.isfinite(logits).any()) or bool(torch.isnan(logits).any()):
            raise KvatlasError("the model's logits are no numbers")
        return logits

    def require_tokens(self, prompt: Prompt) -> None:
        if max(prompt.tokens) >= self.config.vocab_size or min(prompt.tokens) < 0:
            raise KvatlasError(f"{prompt.id}: a token is none of the model's {self.config.vocab_size}")

    def first_look(self, prompt: Prompt) -> None:
        """What the layers are, by a pass over the first prompt, which must give the logits of one that nothing records."""
        self.require_tokens(prompt)
        tokens = prompt.tokens[:512]
        plain = self.logits_of(self.run(tokens, logits_to_keep=1))

        def look(number: int, given: Attended) -> None:
            where = f"layer {number}"
            if given.before != 0:
                raise KvatlasError(
                    f"{where} attends to {given.key.shape[1]} keys where the prompt has {given.query.shape[1]} tokens: a profile has no place for others"
                )
            off = output_difference(given, self.last_out)
            if not off <= _MOST_OFF.get(self.last_out.dtype, 1e-1):
                raise KvatlasError(
                    f"{where}: what it gives is not the mean of its values by the scores that it was handed ({off:.2g} apart), "
                    "so something else decides what it attends to, and a profile would be wrong"
                )
            self.layers[number] = _Layer(
                given.query.shape[0], given.key.shape[0], given.key.shape[2], given.value.shape[2], given.key.data_ptr(), given.window
            )

        self.phase = look
        with self.recorder.forward():
            out = self.run(tokens, logits_to_keep=1)
        recorded = self.logits_of(out)
        apart = float((recorded - plain).abs().max())
        if apart > 1e-3 * max(1.0, float(plain.abs().max())):
            raise KvatlasError(f"recording changes the model's logits by {apart:.3g}, so nothing is captured; please report the model")
        if not self.layers:
            raise KvatlasError(
                f"{type(self.model).__name__} calls none of the attention functions that transformers knows, so nothing can be recorded"
            )
        self.layers = dict(sorted(self.layers.items()))
        self.look_at_cache(out.past_key_values)
        self.describe()

    def look_at_cache(self, cache: Any) -> None:
        """Windows are those of the cache; and a layer that has keys and was not seen attends in code of its own."""
        for number, layer in enumerate(getattr(cache, "layers", ())):
            keys = getattr(layer, "keys", None)
            if number in self.layers:
                self.layers[number].window = int(getattr(layer, "sliding_window", None) or 0) or self.layers[number].window
            elif isinstance(keys, torch.Tensor) and keys.numel():
                raise KvatlasError(f"layer {number} keeps keys and attends to them in code of its own, which capture does not see")
        total = self.config.num_hidden_layers
        if any(number >= total for number in self.layers):
            raise KvatlasError(f"layer {max(self.layers)} attends, of a model that says it has {total} layers")
        kinds = getattr(self.config, "layer_types", None) or []
        for number, kind in enumerate(kinds):
            if number not in self.layers or self.layers[number].window:
                continue
            size = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}.get(kind)
            if size:
                self.layers[number].window = int(getattr(self.config, size, 0) or 0)

    def describe(self) -> None:
        layers = list(self.layers.values())
        self.shape = {
            "layers": len(layers),
            "heads": max(one.heads for one in layers),
            "kv_heads": max(one.kv_heads for one in layers),
            "head_dim": max(max(one.key_dim, one.value_dim) for one in layers),
            "vocab": self.config.vocab_size,
        }
        for number, one in self.layers.items():
            if one.heads != self.shape["heads"] or self.shape["kv_heads"] % one.kv_heads:
                raise KvatlasError(f"layer {number} has {one.heads} heads on {one.kv_heads} KV heads beside layers with others, which have no equal in a file")
        shape = ",".join(f"{name}={size}" for name, size in self.shape.items())
        self.description = json.loads(run("profile", describe=shape, json=True, **self.settings))
        parts = set(self.description["capture"]["capture"])
        if parts - _TAKEN:
            raise KvatlasError(f"capture does not take {', '.join(sorted(parts - _TAKEN))}: that needs kvatlas's own engine; it takes {', '.join(sorted(_TAKEN))}")
        self.model_record = self.record()

    def record(self) -> dict[str, Any]:
        """The attributes of the root that say what model it is."""
        config, numbers = self.config, list(self.layers)
        fingerprints = of_model(self.model, self.tokenizer, self.given_fingerprint)
        rank = int(getattr(config, "kv_lora_rank", 0) or 0)
        plain = 2 * self.shape["kv_heads"] * self.shape["head_dim"]
        cached, lent = [], set()
        for one in self.layers.values():
            own = one.keys not in lent
            lent.add(one.keys)
            if rank:
                cached.append(rank + int(getattr(config, "qk_rope_head_dim", 0) or 0))
            else:
                cached.append(one.kv_heads * (one.key_dim + one.value_dim) if own else 0)
        record: dict[str, Any] = {
            "model_name": fingerprints.name,
            "architecture": fingerprints.architecture,
            "model_fingerprint": fingerprints.model,
            "tokenizer_fingerprint": fingerprints.tokenizer,
            "n_layers": len(numbers),
            "n_heads": self.shape["heads"],
            "n_kv_heads": self.shape["kv_heads"],
            "head_dim": self.shape["head_dim"],
            "vocab_size": config.vocab_size,
            "context_length": int(getattr(config, "max_position_embeddings", 0) or 0),
            "window": [one.window for one in self.layers.values()],
            "backend": self.backend(),
        }
        if len(numbers) < config.num_hidden_layers:
            record["layer_numbers"] = numbers
        if rank or any(values != plain for values in cached):
            record["cached_values"] = cached
        if rank:
            record["latent_rank"] = rank
        return record

    def backend(self) -> str:
        import transformers

        devices = sorted({str(parameter.device) for parameter in self.model.parameters()})
        kind = str(next(self.model.parameters()).dtype).removeprefix("torch.")
        attention = getattr(self.config, "_attn_implementation", None) or "eager"
        return f"{' '.join(devices)}, {kind}, transformers {transformers.__version__} {attention}"

    def padded(self, given: Attended, number: int) -> Attended:
        """In the model's largest sizes: heads filled up with zeros, and KV heads repeated."""

        def filled(values: torch.Tensor) -> torch.Tensor:
            lacking = self.shape["head_dim"] - values.shape[2]
            return torch.nn.functional.pad(values, (0, lacking)) if lacking else values

        def repeated(values: torch.Tensor) -> torch.Tensor:
            times = self.shape["kv_heads"] // values.shape[0]
            return values.repeat_interleave(times, 0) if times > 1 else values

        same = (self.layers[number].key_dim, self.layers[number].value_dim) == (self.shape["head_dim"],) * 2
        if same and self.layers[number].kv_heads == self.shape["kv_heads"]:
            return given
        return replace(given, query=filled(given.query), key=repeated(filled(given.key)), value=repeated(filled(given.value)))

    def sample(self, index: int, prompt: Prompt) -> dict[str, np.ndarray]:
        self.require_tokens(prompt)
        numbers = self.description["numbers"]
        taken = SampleStatistics(self.description, self.shape, len(prompt.tokens), index < numbers["map_samples"])
        place = {number: layer for layer, number in enumerate(self.layers)}
        decodes = bool(taken.parts & {"lazy", "kept"})

        def prefill(number: int, given: Attended) -> None:
            if number not in place:
                raise KvatlasError(f"layer {number} attends to this prompt and did not to the first, which no profile says")
            if given.before != 0 or given.query.shape[1] != len(prompt.tokens):
                raise KvatlasError(f"layer {number} attends to {given.key.shape[1]} keys of a prompt of {len(prompt.tokens)} tokens")
            if decodes:
                self.held[number] = _Held(given.key, given.value)
            taken.prefill(place[number], self.padded(given, number))

        self.held = {}
        self.phase = prefill
        with self.recorder.forward():
            out = self.run(prompt.tokens, logits_to_keep=1)
        if missing := set(place) - self.recorder.seen:
            raise KvatlasError(f"layer {min(missing)} did not attend to this prompt, though it did to the first")
        logits = self.logits_of(out)
        taken.end_prefill(logits)
        if decodes:
            self.generate(taken, place, logits, out.past_key_values)
        self.held = {}
        if self.tokenizer is not None:
            self.add_texts(taken, prompt)
        return taken.arrays

    def generate(self, taken: SampleStatistics, place: dict[int, int], logits: torch.Tensor, cache: Any) -> None:
        ends = self.end_tokens()
        for step in range(taken.numbers["generated"]):
            token = int(logits.argmax())
            if "lazy" in taken.parts:
                taken.array("lazy/generated_tokens")[step] = token
            last = step + 1 == taken.numbers["generated"]

            def decode(number: int, given: Attended, step: int = step) -> None:
                taken.decode(place[number], self.padded(self.with_prompt(number, given, taken.tokens + step + 1), number), step)

            self.phase = decode
            with self.recorder.forward():
                out = self.run([token], past_key_values=cache)
            if last or token in ends:
                return
            logits, cache = self.logits_of(out), out.past_key_values

    def with_prompt(self, number: int, given: Attended, tokens: int) -> Attended:
        """The generated token's attention to all tokens, also where the cache holds the last ones alone."""
        held, there = self.held[number], given.key.shape[1]
        if there > tokens:
            raise KvatlasError(f"layer {number} attends to {there} keys where there are {tokens} tokens")
        if there == tokens:
            return given
        shared = held.key.shape[1] == tokens  # a layer before it has added the token's key
        if not shared:
            held.key = torch.cat([held.key, given.key[:, -1:]], 1)
            held.value = torch.cat([held.value, given.value[:, -1:]], 1)
        seen = torch.zeros(1, 1, tokens, dtype=torch.bool, device=given.key.device)
        seen[..., tokens - there :] = True
        if given.mask is None:
            mask = seen
        elif given.mask.dtype == torch.bool:
            mask = torch.nn.functional.pad(given.mask, (tokens - there, 0))
        else:
            mask = torch.nn.functional.pad(given.mask, (tokens - there, 0), value=torch.finfo(given.mask.dtype).min)
        return replace(given, key=held.key, value=held.value, mask=mask, window=0)

    def end_tokens(self) -> set[int]:
        said = getattr(getattr(self.model, "generation_config", None), "eos_token_id", None)
        return set() if said is None else {said} if isinstance(said, int) else set(said)

    def add_texts(self, taken: SampleStatistics, prompt: Prompt) -> None:
        texts = [token_bytes(self.tokenizer, token) for token in prompt.tokens]
        ends = np.cumsum([len(text) for text in texts])
        if ends[-1] >= 1 << 31 or not ends[-1]:
            return
        taken.array("text/bytes", int(ends[-1]))[:] = np.frombuffer(b"".join(texts), np.uint8)
        taken.array("text/ends", len(texts))[:] = ends


# ---- the files


class _Parts:
    """The folder of finished samples beside the profile (docs/profile-format.md, "While it is written"), and its lock."""

    def __init__(self, path: pathlib.Path, resume: bool, force: bool):
        if resume and force:
            raise KvatlasError("force begins anew and resume goes on: give one of them")
        self.path, self.folder = path, path.with_name(path.name + ".parts")
        self.resume, self.force = resume, force
        self.done: set[int] = set()

    def __enter__(self) -> _Parts:
        if not self.path.parent.is_dir():
            raise KvatlasError(f"there is no folder {self.path.parent}")
        self.folder.mkdir(exist_ok=True)
        self.lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self.lock)
            raise KvatlasError(f"another process writes {self.path}") from None
        try:
            self.look()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.lock)
        if not self.parts():
            shutil.rmtree(self.folder, ignore_errors=True)

    def parts(self) -> list[pathlib.Path]:
        return sorted(one for one in self.folder.glob("*.h5") if one.stem.isdigit())

    def part(self, index: int) -> pathlib.Path:
        return self.folder / f"{index:06d}.h5"

    def look(self) -> None:
        for left in self.folder.glob("*.tmp"):
            left.unlink()
        if self.path.exists():
            Profile(self.path).close()  # nothing but a profile is ever replaced
        if self.force:
            for one in self.parts():
                one.unlink()
            self.path.unlink(missing_ok=True)
        there = [one for one in [self.path, *self.parts()] if one.exists()]
        if there and not self.resume:
            raise KvatlasError(f"{self.path} is there already, or a part of it: resume=True goes on with it, force=True begins anew")
        for one in there:
            try:
                with Profile(one) as profile:
                    self.done |= set(profile.sample_index.tolist())
            except KvatlasError:
                if one == self.path:
                    raise
                one.unlink()  # a damaged part, which is captured again

    def require_same(self, capture: dict, prompts: dict, model: dict[str, Any]) -> None:
        """What lies there must be of this model, these prompts and these settings."""
        for one in [self.path, *self.parts()][:2]:
            if not one.exists():
                continue
            with Profile(one) as profile:
                for what, there, here in (("other settings", profile.capture, capture), ("other prompts", profile.prompts, prompts),
                                          ("another model", profile.model.fingerprint, model["model_fingerprint"])):  # fmt: skip
                    if there != here:
                        raise KvatlasError(f"{one} was begun with {what}, so it cannot be resumed: force=True begins anew")

    def join(self) -> None:
        """All samples in one file. A kill leaves the parts, or the whole."""
        files = ([self.path] if self.path.exists() else []) + self.parts()
        if files == [self.path]:
            return
        folder = self.path.with_name(self.path.name + ".joined")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            while len(files) > _AT_ONCE:
                folder.mkdir(exist_ok=True)
                groups = [files[i : i + _AT_ONCE] for i in range(0, len(files), _AT_ONCE)]
                files = [_merged(group, folder / f"{len(files)}-{number}.h5") for number, group in enumerate(groups)]
            _merged(files, self.path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _merged(files: Sequence[pathlib.Path], to: pathlib.Path) -> pathlib.Path:
    run("merge", *files, output=to, force=True)
    return to


