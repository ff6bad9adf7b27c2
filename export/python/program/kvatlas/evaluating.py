# SPDX-License-Identifier: Apache-2.0
"""`kvatlas.evaluate` of a transformers model in memory, as docs/python.md describes. The program makes the prompts,
scores the answers and judges them; the model is run here."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import kvatlas_transformers
import torch
from kvatlas_transformers.policy import shape_of
from kvatlas_transformers.press import PressScores, is_press

from .answers import Answer
from .errors import KvatlasError
from .policy import Policy
from .profile_writer import Prompt
from .program import NOT_MET, run, run_for
from .prompts import prompts_of

_LOG = logging.getLogger("kvatlas")
_NEW_TOKENS = 32  # where neither the prompt nor its task says how long an answer is
_OF_ANSWER = ("id", "task", "answers", "all_classes", "metric", "language", "group")  # that scoring asks for
_MEASURED = ("samples", "texts", "score", "full", "loss", "kept_share", "tasks")  # what a policy document keeps of it


def evaluate_in_memory(
    model: Any,
    named: Sequence[Any],
    *,
    policies: Any = (),
    scorers: Mapping[str, Any] | None = None,
    budget: int | None = None,
    tokenizer: Any = None,
    prompts: str | os.PathLike | Sequence[Any] | None = None,
    tasks: str | Sequence[str] | None = None,
    lengths: Sequence[int] = (1024,),
    depths: Sequence[float] = (0.1, 0.5, 0.9),
    seeds: int = 3,
    seed: int = 0,
    chat: bool = False,
    max_tokens: int = 0,
    new: int = 0,
    max_loss: float = 1,
) -> Answer:
    if tokenizer is None:
        raise KvatlasError("answers are texts: give tokenizer=")
    if model.training:
        raise KvatlasError("the model is in training mode, in which dropout changes its answers: call model.eval()")
    given = [prompt for prompt in prompts_of(prompts, tasks, tokenizer, lengths, depths, seeds, seed, chat, max_tokens) if prompt.answers]
    if not given:
        raise KvatlasError("there are no prompts with answers to score by: give tasks=, or prompts= with answers")
    answer_tokens = {one["name"]: one["answer_tokens"] for of in json.loads(run("tasks", json=True)).values() for one in of}
    kind = model.config.get_text_config()._attn_implementation
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory(prefix="kvatlas-") as folder:
        stack.callback(model.set_attn_implementation, kind)
        tried: dict[str, kvatlas_transformers.Policy] = {}
        given_policies = [("", one) for one in named] + _named(policies)
        for name, policy in [*_policies(model, given_policies), *_scored(model, scorers or {}, budget, stack)]:
            if name in {"full", *tried}:
                raise KvatlasError(f"two policies are called {name!r}")
            tried[name] = policy
        if not tried:
            raise KvatlasError("there is nothing to evaluate: give policies= or scorers=")
        runs = _Runs(model, tokenizer, tried, pathlib.Path(folder))
        stack.enter_context(_as_ours())
        for number, prompt in enumerate(given, 1):
            runs.answer(prompt, new or prompt.max_new_tokens or answer_tokens.get(prompt.task.split(":")[0], _NEW_TOKENS))
            _LOG.info("evaluate: prompt %d of %d", number, len(given))
        return runs.judged(max_loss)


def _named(policies: Any) -> list[tuple[str, Any]]:
    """One policy, several, or several by names of the caller's."""
    if isinstance(policies, dict) and "schema" not in policies:
        return list(policies.items())
    return [("", one) for one in ([policies] if isinstance(policies, (str, os.PathLike, dict, Policy)) else policies)]


def _policies(model: Any, given: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, kvatlas_transformers.Policy]]:
    """Texts such as "snapkv:budget=128", documents, and files of documents, of which each section is a policy."""
    shape = asdict(shape_of(model))
    for called, one in given:
        document = one.document if isinstance(one, Policy) else one
        if not isinstance(document, dict):
            document = json.loads(run("inspect", document, json=True))
        is_text = isinstance(one, str) and "model" not in document
        sections = [name for name, part in document.items() if isinstance(part, dict) and "settings" in part]
        whole = is_text or bool(document.get("compose")) or len(sections) < 2
        for section in [None] if whole else sections:
            name = one if is_text else section or "+".join(document.get("compose") or sections)
            name = f"{called} {section}" if called and section else called or name
            with _as_ours():
                yield name, kvatlas_transformers.load({"model": shape} | document, section)


def _scored(model: Any, scorers: Mapping[str, Any], budget: int | None, stack: contextlib.ExitStack) -> Iterator[tuple[str, kvatlas_transformers.Policy]]:
    """Functions that score tokens, and kvpress's presses that do."""
    for name, scorer in scorers.items():
        if budget is None:
            raise KvatlasError("scorers need budget=: how many tokens each KV head keeps")
        score = stack.enter_context(PressScores(scorer, model, budget)) if is_press(scorer) else scorer
        with _as_ours():
            yield name, kvatlas_transformers.Policy.scored(model, score, budget, name)


@contextlib.contextmanager
def _as_ours() -> Iterator[None]:
    try:
        yield
    except kvatlas_transformers.PolicyError as error:
        raise KvatlasError(str(error)) from None


class _Runs:
    """The answers of the model with its whole cache and with those of all policies, one folder of the program's each."""

    def __init__(self, model: Any, tokenizer: Any, policies: dict[str, kvatlas_transformers.Policy], folder: pathlib.Path):
        self.model, self.tokenizer, self.folder = model, tokenizer, folder
        self.shape = shape_of(model)
        self.policies = {"full": kvatlas_transformers.Policy(self.shape, [])} | policies
        self.shares: dict[str, list[float]] = {name: [] for name in self.policies}
        said = getattr(model.generation_config, "eos_token_id", None)
        self.ends = set() if said is None else {said} if isinstance(said, int) else set(said)

    @torch.no_grad()
    def forward(self, tokens: Sequence[int], cache: Any) -> torch.Tensor:
        ids = torch.tensor([list(tokens)], device=self.model.get_input_embeddings().weight.device)
        return self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]

    def answer(self, prompt: Prompt, most: int) -> None:
        """Of the prompt, which is read once for all that cut what was read."""
        caches = {name: policy.cache(self.model, self.tokenizer, prompt.tokens) for name, policy in self.policies.items()}
        alone = {name for name, cache in caches.items() if cache.formats.rounds_prompt}
        caches["full"].read_with([cache for name, cache in caches.items() if name != "full" and name not in alone])
        read = self.forward(prompt.tokens, caches["full"])
        whole = caches["full"].bytes()
        for name, cache in caches.items():
            logits = self.forward(prompt.tokens, cache) if name in alone else read
            tokens, held = self.decoded(cache, logits, most)
            self.shares[name].append(held / whole * len(prompt.tokens))
            line = {key: getattr(prompt, key) for key in _OF_ANSWER if getattr(prompt, key)}
            line |= {"generated": self.tokenizer.decode(tokens, skip_special_tokens=True)}
            with open(self.folder / f"{list(caches).index(name)}.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def decoded(self, cache: Any, logits: torch.Tensor, most: int) -> tuple[list[int], float]:
        """The greedy answer, and the bytes that the cache took once it was cut, of each token seen until then."""
        tokens: list[int] = []
        held = cache.bytes() / cache.get_seq_length()
        while len(tokens) < most and (token := int(logits.argmax())) not in self.ends:
            tokens.append(token)
            if len(tokens) < most:
                was_cut = cache.is_cut
                logits = self.forward([token], cache)
                held = held if was_cut else cache.bytes() / cache.get_seq_length()
        return tokens, held

    def judged(self, max_loss: float) -> Answer:
        """What the program says of the answers."""
        full, *files = (str(self.folder / f"{number}.jsonl") for number in range(len(self.policies)))
        words = ["certify", *files, "--full", full, "--format", "kvatlas"]
        said, status = run_for((NOT_MET,), *words, json=True, force=True, max_loss=max_loss)
        document = json.loads(said)
        found: list[dict[str, Any]] = []
        for name, row in zip(list(self.policies)[1:], document.pop("runs")):
            row["kept_share"] = sum(self.shares[name]) / len(self.shares[name])
            found.append({"policy": name} | {key: value for key, value in row.items() if key != "run"})

        def of_full(row: dict[str, Any]) -> dict[str, Any]:
            return {"samples": row["samples"], "texts": row["texts"], "score": row["full"]}

        whole = {"policy": "full", **of_full(found[0]), "kept_share": 1.0}
        whole["tasks"] = {task: of_full(row) for task, row in found[0].get("tasks", {}).items()}
        compared = [{"policy": row["policy"], "measured": {key: row[key] for key in _MEASURED if key in row}} for row in found]
        pictured = {"schema": "kvatlas.policy/1.0", "model": asdict(self.shape), "compared": compared}
        return Answer(document | {"policies": [whole, *found]}, pictured, status == 0)
