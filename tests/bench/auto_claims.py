#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether what `calibrate auto` says of unseen texts is true of others: searches that differ in their texts alone, and then
200 fresh texts for all of their policies together. A claim holds if the loss on the fresh texts lies within its bounds.

    tests/bench/auto_claims.py build/bin/kvatlas MODEL.gguf FOLDER [SEARCHES]

About 40 minutes on two cores for 20 searches. What is in FOLDER already is not run again.
"""
import json
import pathlib
import subprocess
import sys

TEXTS = ("--task", "needle", "--task", "passkey:haystack=prose", "--lengths", "256", "--depths", "0.5")
PROFILE = ("--capture", "lazy,js,scores,kept", "--initial", "4,16", "--recent", "32,64", "--budgets", "64,96,128", "--lags", "16,32")
WISH = ("--kv-saving", "0.8", "--context", "256", "--max-loss", "30", "--candidates", "12")
SEEDS, FRESH = 16, 100  # texts of each of the two tasks
MET, NOT_MET = 0, 4  # exit codes of a search


def main():
    kvatlas, model, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    searches = int(sys.argv[4]) if len(sys.argv) > 4 else 20
    folder.mkdir(parents=True, exist_ok=True)

    def run(*words, codes=(0,)):
        done = subprocess.run([kvatlas, *map(str, words), "--model", model], capture_output=True, text=True)
        if done.returncode not in codes:
            raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    documents = []
    for search in range(searches):
        profile, document = folder / f"{search}.h5", folder / f"{search}.json"
        documents.append(document)
        if document.exists():
            continue
        print(f"search {search + 1} of {searches}", file=sys.stderr)
        run("profile", *TEXTS, "--seeds", SEEDS, "--seed", 1000 * search, *PROFILE, "-o", profile, "--force")
        run("calibrate", "auto", "-p", profile, *WISH, "--seed", search, "-o", document, "--force", codes=(MET, NOT_MET))

    fresh = folder / "fresh.json"
    if not fresh.exists():
        print("fresh texts", file=sys.stderr)
        given = [word for document in documents for word in ("--policy", document)]
        fresh.write_text(run("evaluate", *given, *TEXTS, "--seeds", FRESH, "--seed", 1000000, "--time-steps", 0, "--json"))
    losses = [100 * policy["loss"]["mean"] for policy in json.loads(fresh.read_text())["policies"][1:]]
    assert len(losses) == searches

    print(f"| search | policy | kept | unseen texts | loss at most (points) | certified for {WISH[5]} | loss on {2 * FRESH} fresh texts | holds |")
    print("|---|---|---|---|---|---|---|---|")
    held = 0
    for number, (document, loss) in enumerate(zip(documents, losses)):
        read = json.loads(document.read_text())
        chosen = next(point for point in read["pareto"] if point["chosen"])
        certificate = read["search"]["certificate"]
        bounds = {end: 100 * value for end, value in certificate["loss"].items()}
        holds = bounds["low"] <= loss <= bounds["high"]
        held += holds
        print(
            f"| {number + 1} | `{chosen['policy']}` | {100 * chosen['kept_share']:.1f} % | {certificate['unseen_texts']} | {bounds['high']:.1f} | "
            f"{'yes' if certificate['certified'] else 'no'} | {loss:.1f} | {'yes' if holds else 'NO'} |"
        )
    print(f"\n{held} of {searches} claims hold (at least {round(0.95 * searches)} are promised)")


if __name__ == "__main__":
    main()
