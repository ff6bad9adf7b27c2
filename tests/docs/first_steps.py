#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""first_steps.py KVATLAS: what a newcomer types, as it stands, on a small model: the two commands of the window's start
page, every method of calibration without an option, and an option with a list before a policy. The model's numbers are
random, so the right answers of its prompts are what it generates itself."""
import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import tiny_checkpoint  # noqa: E402

START_PAGE = ROOT / "viewer/frame/start_page.cpp"
GENERATED = " --task needle --lengths 512 --depths 0.5 --seeds 10"  # prompts that a random model cannot answer
METHODS = ("simlayerkv", "pod", "dynamickv", "headkv", "lagkv", "precision")


def start_page_commands() -> list[str]:
    """The lines of the page that begin with the program's name."""
    text = re.sub(r'"\s*"', "", START_PAGE.read_text())  # literals that follow each other are one
    return [line for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', text) for line in literal.split("\\n")
            if line.startswith("kvatlas ")]


class Runner:
    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program.resolve(), folder

    def must(self, command: str, *, or_end: int = 0) -> subprocess.CompletedProcess:
        words = [str(self.program) if word == "kvatlas" else word for word in shlex.split(command)]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=600)
        if done.returncode not in (0, or_end):
            sys.exit(f"{command}\nended with {done.returncode}: {done.stderr}")
        print(command, flush=True)
        return done

    def write_prompts(self, tokens: int) -> None:
        """Ten texts of about so many tokens, each asked for what the model goes on with."""
        prompts = [{"id": f"{n}", "input": " ".join(f"the {n + 3 * i} ships are here" for i in range(tokens // 14))}
                   for n in range(10)]
        (self.folder / "asked.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        said = self.must("kvatlas generate --model MODEL --prompts asked.jsonl --new 6 --json").stdout
        for prompt, line in zip(prompts, said.splitlines(), strict=True):
            prompt["answers"] = [json.loads(line)["text"]]
        (self.folder / "mine.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        runner = Runner(Path(sys.argv[1]), Path(name))
        tiny_checkpoint.write(Path(name) / "MODEL", seed=3, layers=4)
        runner.write_prompts(tokens=600)
        profile, calibrate = start_page_commands()
        assert re.match(rf"kvatlas profile --model MODEL{re.escape(GENERATED)} -o p.h5$", profile), profile
        assert f"kvatlas profile --model M{GENERATED} -o p.h5 " in (ROOT / "README.md").read_text()
        runner.must(f"{profile.replace(GENERATED, '')} --prompts mine.jsonl")
        done = runner.must(calibrate)
        said = done.stderr
        # The published windows are longer than these prompts: what is taken instead is said.
        for method in ("simlayerkv", "pod", "lagkv"):
            assert f"kvatlas: {method}: " in said and " in place of " in said, said
        sections = json.loads((Path(name) / "policy.json").read_text())
        # A method that finds nothing which saves and keeps the score is in no document, and its tables say so.
        nothing = "that saves and keeps the score"
        assert done.stdout.count(nothing) == len(set(METHODS) - set(sections)), sections.keys()
        for method in METHODS:
            alone = runner.must(f"kvatlas calibrate {method} -p p.h5 --model MODEL -o {method}.json", or_end=4)
            assert (method in sections) == (alone.returncode == 0) == (nothing not in alone.stdout), alone.stdout
        for method in METHODS[:-1]:  # number formats are tried on the model alone
            runner.must(f"kvatlas calibrate {method} -p p.h5", or_end=4)
        # No list takes the word behind it.
        runner.must("kvatlas export --to kvpress,transformers policy.json -o exported")
        runner.must("kvatlas inspect policy.json")


if __name__ == "__main__":
    main()
