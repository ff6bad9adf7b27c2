# SPDX-License-Identifier: Apache-2.0
"""Prompts as `kvatlas.capture` and `kvatlas.evaluate` take them for a model in memory."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from .errors import KvatlasError
from .profile_writer import Prompt
from .program import run

_TASK_LINES = ("id", "task", "length", "depth", "seed", "answers", "group", "metric", "all_classes", "language", "max_new_tokens")


def prompts_of(prompts, tasks, tokenizer, lengths, depths, seeds, seed, chat, max_tokens) -> Iterator[Prompt]:
    if (prompts is None) == (tasks is None):
        raise KvatlasError("give either prompts= or tasks=")
    if tasks is not None:
        lines: Iterable[Any] = _task_lines([tasks] if isinstance(tasks, str) else tasks, tokenizer, lengths, depths, seeds, seed, chat)
    elif isinstance(prompts, os.PathLike) or (isinstance(prompts, str) and prompts.endswith(".jsonl")):
        lines = _file_lines(pathlib.Path(prompts))
    else:
        lines = [prompts] if isinstance(prompts, str) else prompts
    for number, line in enumerate(lines, 1):
        yield _prompt(number, line, tokenizer, chat, max_tokens)


def _file_lines(path: pathlib.Path) -> Iterator[dict]:
    try:
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if not text.strip():
                    continue
                try:
                    line = json.loads(text)
                except (ValueError, RecursionError) as error:
                    raise KvatlasError(f"{path}, line {number}: no JSON: {error}") from None
                if not isinstance(line, dict):
                    raise KvatlasError(f"{path}, line {number}: expected an object")
                yield line
    except (OSError, UnicodeDecodeError) as error:
        raise KvatlasError(f"{path} cannot be read: {error}") from None


def _task_lines(tasks, tokenizer, lengths, depths, seeds, seed, chat) -> Iterator[dict]:
    with_depth = {one["name"]: one["has_depth"] for one in json.loads(run("tasks", json=True))["tasks"]}
    for task in tasks:
        for length in lengths:
            for depth in depths if with_depth.get(task.split(":")[0], True) else (0,):
                for number in range(seed, seed + seeds):
                    yield _fitted(task, length, depth, number, tokenizer, chat)


def _fitted(task: str, length: int, depth: float, seed: int, tokenizer, chat: bool) -> dict:
    """A prompt of at most so many tokens, and nearly as many: the program estimates tokens by words."""
    asked, best = length, None
    for _ in range(6):
        line = json.loads(run("tasks", task=task, length=max(16, asked), depth=depth, seed=seed))
        count = len(_encoded(line, tokenizer, chat))
        if count <= length and (best is None or count > best[0]):
            best = count, line
        if length - length // 50 <= count <= length:
            break
        asked = asked * length // max(1, count) - (1 if count > length else 0)
    if best is None:
        raise KvatlasError(f"task {task!r} cannot be made so short: {length} tokens")
    return {**best[1], "length": length}


def _text_of(line: dict) -> str:
    if "text" in line:
        return line["text"]
    first, then = line.get("context", ""), line.get("input", "")
    return f"{first}\n\n{then}" if first and then else first or then


def _encoded(line: dict, tokenizer, chat: bool) -> list[int]:
    text, begun = _text_of(line), line.get("answer_prefix", "")
    if tokenizer is None:
        raise KvatlasError("a prompt of text needs a tokenizer: give one, or token ids")
    if chat:
        words = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True)
        return list(tokenizer(words + begun, add_special_tokens=False)["input_ids"])
    return list(tokenizer(text + begun)["input_ids"])


def _prompt(number: int, line: Any, tokenizer, chat: bool, max_tokens: int) -> Prompt:
    if isinstance(line, str):
        line = {"text": line}
    elif not isinstance(line, dict):
        line = {"tokens": [int(token) for token in line]}
    where = f"prompt {number}"
    if known := [name for name in ("multi_turns", "outputs", "question", "choice_A") if name in line]:
        raise KvatlasError(f"{where} has {known[0]!r}: of the layouts of prompts, capture reads 'text', 'tokens', and 'context' with 'input'")
    tokens = list(line["tokens"]) if line.get("tokens") else _encoded(line, tokenizer, chat)
    cut = 0
    if max_tokens and len(tokens) > max_tokens:
        cut = len(tokens) - max_tokens
        first = max_tokens // 2
        tokens = tokens[:first] + tokens[len(tokens) - (max_tokens - first) :]
    if len(tokens) < 2:
        raise KvatlasError(f"{where} has {len(tokens)} tokens: 2 are the least")
    said = {name: line[name] for name in _TASK_LINES if line.get(name) is not None}
    for name in ("answers", "all_classes"):
        said[name] = (said[name],) if isinstance(said.get(name), str) else tuple(said.get(name, ()))
    said["depth"] = float(said.get("depth", -1))
    for name in ("id", "task", "group", "metric", "language"):
        if "\0" in str(said.get(name, "")) or any("\0" in one for one in said["answers"]):
            raise KvatlasError(f"{where}: a text of it holds a zero byte, which no profile can keep")
    return Prompt(tokens=tokens, cut_tokens=cut, **{"id": where, **said})
