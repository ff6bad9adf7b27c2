# SPDX-License-Identifier: Apache-2.0
"""What commands answer, as tables and pictures. Pictures are those of `kvatlas render`."""

from __future__ import annotations

import html
import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import KvatlasError
from .program import NOT_MET, Option, run, run_for

_SHOWN = 200  # rows of a table in a notebook


class Picture:
    """An SVG drawing, which a notebook shows."""

    def __init__(self, svg: str):
        self.svg = svg

    def __repr__(self) -> str:
        return f"<kvatlas picture, {len(self.svg)} characters of SVG>"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike) -> None:
        pathlib.Path(path).write_text(self.svg, "utf-8")


class Rows(list):
    """A table where pandas is not installed: a list of rows, each an object by column."""

    def _repr_html_(self) -> str:
        return table_html(self)


def table_of(rows: Iterable[dict[str, Any]]) -> Any:
    """A pandas.DataFrame, or Rows without pandas."""
    rows = list(rows)
    try:
        import pandas
    except ImportError:
        return Rows(rows)
    return pandas.DataFrame(rows)


def table_html(rows: Sequence[dict[str, Any]], caption: str = "") -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))

    def cell(value: Any) -> str:
        text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
        return f'<td style="text-align:{"right" if isinstance(value, (int, float)) else "left"}">{html.escape(text)}</td>'

    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(cell(row.get(name)) for name in columns)}</tr>" for row in rows[:_SHOWN])
    more = f"<tfoot><tr><td colspan={len(columns)}>and {len(rows) - _SHOWN} more</td></tr></tfoot>" if len(rows) > _SHOWN else ""
    said = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{said}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{more}</table>"


def drawn(what: str, files: Sequence[str | os.PathLike], **options: Option) -> Picture:
    """`kvatlas render FILES --what WHAT …` as a picture; an unknown name is refused with the known ones."""
    with tempfile.TemporaryDirectory(prefix="kvatlas-") as folder:
        to = pathlib.Path(folder) / "picture.svg"
        run("render", *files, what=what, output=to, **options)
        return Picture(to.read_text("utf-8"))


def drawn_of_document(what: str, document: dict[str, Any], files: Sequence[str | os.PathLike], **options: Option) -> Picture:
    with tempfile.TemporaryDirectory(prefix="kvatlas-") as folder:
        path = pathlib.Path(folder) / "policy.json"
        path.write_text(json.dumps(document), "utf-8")
        return drawn(what, [*files, path], **options)


def _mean(interval: Any) -> float | None:
    return interval.get("mean", interval.get("value")) if isinstance(interval, dict) else interval


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Numbers with their intervals beside them, and divergences by name; lists and longer objects are left to `document`."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and {"low", "high"} <= set(value):
            out |= {name: _mean(value), f"{name}_low": value["low"], f"{name}_high": value["high"]}
        elif name == "kl" and isinstance(value, dict):
            out |= {f"kl_{key}": _mean(one) for key, one in value.items()}
        elif not isinstance(value, (dict, list)):
            out[name] = value
    return {"policy": out.pop("policy", None)} | out


@dataclass(frozen=True, eq=False)
class Answer:
    """What `evaluate`, `check` or `certify` found. `document` is what the program printed."""

    document: dict[str, Any]
    policies: dict[str, Any]  # the policy document with what was found, for pictures; empty: there is none
    met: bool = True  # whether a check passed, or a loss is surely small enough

    def judged(self) -> list[dict[str, Any]]:
        """What the program says of each policy, or of each run that was certified."""
        if "runs" not in self.document:
            return self.document["policies"]
        return [{"policy": row["run"]} | {key: value for key, value in row.items() if key != "run"} for row in self.document["runs"]]

    def rows(self, task: str | None = None) -> list[dict[str, Any]]:
        """A row for each policy, the full cache among them; task: its figures on that task alone."""
        rows = self.judged()
        if task is not None:
            if missing := [row["policy"] for row in rows if task not in row.get("tasks", {})]:
                raise KvatlasError(f"{missing[0]} has no figures of {task!r}, only of {', '.join(rows[0].get('tasks', {})) or 'all prompts together'}")
            rows = [{"policy": row["policy"], **row["tasks"][task]} for row in rows]
        return [_flat(row) for row in rows]

    def table(self, task: str | None = None) -> Any:
        return table_of(self.rows(task))

    def plot(self, what: str = "comparison", **options: Option) -> Picture:
        if not self.policies:
            raise KvatlasError("a verdict has no pictures: evaluate() has")
        return drawn_of_document(what, self.policies, (), **options)

    def __repr__(self) -> str:
        return f"<kvatlas answer about {len(self.judged())} {'runs' if 'runs' in self.document else 'policies'}>"

    def _repr_html_(self) -> str:
        return table_html(self.rows())


def evaluate(model: Any, policy: str | os.PathLike | None = None, against: Sequence[str] = (), **options: Any) -> Answer:
    """`kvatlas evaluate`: what policies cost, tried on the model. policy: a document's file, or a policy as text; against:
    more policies as text. Options are the command's, with "_" for "-".

    model may also be a transformers model in memory: evaluate(model, policies=[...], scorers={"mine": f}, budget=128,
    tokenizer=tokenizer, tasks="needle"), as docs/python.md describes; other options are those of `capture`."""
    if not isinstance(model, (str, os.PathLike)):
        from .evaluating import evaluate_in_memory

        return evaluate_in_memory(model, [*([] if policy is None else [policy]), *against], **options)
    document = json.loads(run("evaluate", model=model, policy=policy, against=list(against) or None, json=True, **options))
    card = json.loads(run("inspect", model, json=True))
    full, *others = document["policies"]
    shape = {key: card[key] for key in ("name", "architecture", "fingerprint", "layers", "heads", "kv_heads", "head_dim")}
    of_full = {f"full_{key}": full[key] for key in ("by_length_and_depth", "held_over_tokens") if key in full}
    compared = [{"policy": row["policy"], "measured": {**{key: row[key] for key in row if key != "policy"}, **of_full}} for row in others]
    return Answer(document, {"schema": "kvatlas.policy/1.0", "model": shape, "compared": compared})


def check(policy: str | os.PathLike, model: str | os.PathLike, **options: Option) -> Answer:
    """`kvatlas check`: whether a policy still loses no more than it may; `met` says so, undecided counts as not."""
    said, status = run_for((NOT_MET,), "check", policy, model=model, json=True, **options)
    return Answer(json.loads(said), {}, status == 0)


def certify(compressed: str | os.PathLike | Sequence[str | os.PathLike], full: str | os.PathLike | Sequence[str | os.PathLike],
            **options: Option) -> Answer:  # fmt: skip
    """`kvatlas certify`: what runs that other tools wrote lose to the run with the full cache; `met` as with check."""

    def listed(paths: Any) -> list[str]:
        return [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]

    said, status = run_for((NOT_MET,), "certify", *listed(compressed), "--full", *listed(full), json=True, **options)
    return Answer(json.loads(said), {}, status == 0)
