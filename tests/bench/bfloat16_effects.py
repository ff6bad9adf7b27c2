#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the forward pass in bfloat16 changes in statistics, decisions and scores: the tables of docs/performance.md.

    tests/bench/bfloat16_effects.py build/bin/kvatlas MODEL.gguf FOLDER

Both number types profile and judge the same prompts; what is in FOLDER already is not run again. Needs h5py.
"""
import argparse
import json
import math
import pathlib
import subprocess

import h5py
import numpy

TYPES = ("float32", "bfloat16")
TASKS = ("--task", "needle", "--task", "passkey:haystack=prose", "--lengths", "1024", "--depths", "0.5")
POLICIES = ("simlayerkv:threshold=0.9,recent=256", "pod:delta=0.5,recent=240", "dynamickv:budget=256", "lagkv:lag=128,ratio=1/4",
            "snapkv:budget=256", "chunkkv:budget=256", "kvzip:budget=256", "tova:budget=256", "h2o:budget=256", "full+kv4")


def statistics_differ(single, half):
    """(name, the largest value, the median and the largest difference) of every statistic of two profiles."""
    with h5py.File(single) as first, h5py.File(half) as second:
        names = []
        first["statistics"].visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
        for name in sorted(names):
            values, others = (numpy.asarray(file["statistics"][name], numpy.float64) for file in (first, second))
            seen = numpy.isfinite(values) & numpy.isfinite(others)
            if seen.any():
                differences = abs(values[seen] - others[seen])
                yield name, abs(values[seen]).max(), numpy.median(differences), differences.max()


def tokens_kept(positions):
    """(layer, head, token) of all that a policy keeps."""
    return {(layer, head, token) for layer, heads in enumerate(positions) for head, ranges in enumerate(heads)
            for begin, end in ranges for token in range(begin, end)}


def changed_by_chance(up, down):
    """The chance that of so many changed answers so many or more go one way, if both ways are as likely."""
    changed = up + down
    return min(1, 2 * sum(math.comb(changed, i) for i in range(min(up, down) + 1)) / 2**changed) if changed else 1


def compare(single, half):
    """The row of one policy, whose lines stand at the same place in both lists."""
    pairs = list(zip(single, half))
    lazy = [len(set(first["lazy"]) ^ set(second["lazy"])) for first, second in pairs if "lazy" in first]
    layers = sum(len(first["kept"]) for first, _ in pairs)
    budgets = [abs(a - b) for first, second in pairs for a, b in zip(first.get("budgets", []), second.get("budgets", []))]
    kept = [(tokens_kept(first["positions"]), tokens_kept(second["positions"])) for first, second in pairs if "positions" in first]
    other, of = sum(len(a - b) for a, b in kept), sum(len(a) for a, _ in kept)
    up = sum(second["score"] > first["score"] for first, second in pairs)
    down = sum(second["score"] < first["score"] for first, second in pairs)
    same = sum(first["tokens"] == second["tokens"] for first, second in pairs)
    scores = [sum(line["score"] for line in lines) / len(lines) for lines in (single, half)]
    return [f"{sum(lazy)} of {layers}" if lazy else "-", f"{max(budgets)}" if budgets else "-",
            f"{100 * other / of:.2f} %" if of else "-", f"{same} of {len(pairs)}", f"{scores[0]:.3f}, {scores[1]:.3f}", f"{up} up, {down} down",
            "yes" if changed_by_chance(up, down) < 0.05 else "no"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("kvatlas", "model", "folder"):
        parser.add_argument(name, type=pathlib.Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    profiles, answers = [], []
    for dtype in TYPES:
        model = ("--model", given.model, "--dtype", dtype, *TASKS, "--seed", "5000")
        profile, generated = given.folder / f"{dtype}.h5", given.folder / f"{dtype}.jsonl"
        if not profile.exists():
            subprocess.run([given.kvatlas, "profile", *model, "--seeds", "5", "--new", "8", "--capture", "lazy,js,scores", "-o", profile], check=True)
        if not generated.exists():
            words = ["--seeds", "30", "--policy", POLICIES[0], "--against", ",".join(POLICIES[1:]), "--generations", "--positions"]
            generated.write_bytes(subprocess.run([given.kvatlas, "evaluate", *model, *words], check=True, stdout=subprocess.PIPE).stdout)
        profiles.append(profile)
        answers.append([json.loads(line) for line in generated.read_text().splitlines()])

    print("| statistic | largest value | median difference | largest difference |\n|---|---|---|---|")
    for name, largest, median, difference in statistics_differ(*profiles):
        print(f"| `{name}` | {largest:.3g} | {median:.2g} | {difference:.2g} |")
    print("\n| policy | lazy layers changed | budgets differ by at most | other tokens kept | same answers | score | scores changed | certainly |")
    print("|---|---|---|---|---|---|---|---|")
    for policy in dict.fromkeys(line["policy"] for line in answers[0]):
        row = compare(*([line for line in side if line["policy"] == policy] for side in answers))
        print("| " + " | ".join([f"`{policy}`", *row]) + " |")


if __name__ == "__main__":
    main()
