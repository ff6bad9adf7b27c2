#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command of README.md, HACKING.md and docs/: run_commands.py KVATLAS REFERENCE.json [PAGE …]

A command is a line of an indented or fenced block that begins with kvatlas, build/bin/kvatlas, mpirun, srun or ./dev
(after "$ "). Each page has a folder of its own, where its commands run in order, on a tiny model (gates on the demo's)
and on what `prepare` made; as many pages at a time as there are cores. A comment "# exit 4" (or "exit 0 or 4") says how a command ends;
otherwise it must end well. What lies at -o is removed first, unless the line has --force. Commands that are not run
are in NOT_RUN with the reason, and their words must be known."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import tiny_checkpoint  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "HACKING.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
DEMO_MODEL = CACHE / "kvatlas/SmolLM2-135M-Instruct.Q4_1.gguf"

# What a page's words stand for. Models that take minutes are the tiny one, M.
WORDS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": "M", "org/model": "M", "org/model@v1.0": "M", "llama3.2:1b": "M",
    "lmstudio:org/name/file.gguf": "M", "MODEL": "M", "MODEL.gguf": "M", "./Llama-3.1-8B": "M",
    "demo/smollm2.h5": "p.h5", "demo/policy.json": "policy.json",
    "R": "kvpress", "DIR": "exported",
}
# Sizes that would take minutes, and what is run instead: patterns over the whole command.
SMALLER = [
    (r"^kvatlas profile --model M(?: --task needle --lengths 512 --depths 0.5 --seeds 10)? -o (\S+)$",
     r"kvatlas profile --model M --task needle --task passkey --lengths 600 --seeds 1 -o \1"),
    (r"(?<=--lengths )4096,32768 --seeds 20", "512,1024 --seeds 1"),
    (r"(?<=--lengths )4096 --depths 0.5 --seeds 30", "600 --seeds 1"),
    (r"^(kvatlas check .*) --lengths 4096", r"\1"),
    (r"^(kvatlas check (?!.*--(?:lengths|prompts)).*)$", r"\1 --lengths 400"),
    (r"(?<=calibrate auto --model M --task needle --depths 0.5 --seeds) 20 (.*)--context 4096", r" 5 \1--context 400"),
    (r"needle:turns=4 --lengths 1024 --depths 0.5 --seeds 10", "needle:turns=2 --lengths 600 --depths 0.5 --seeds 1"),
    (r"(?<=--lengths )1024(,2048)?( --depths [\d.,]+)?( --seeds \d+)?", "600 --seeds 1"),
    (r"^kvatlas evaluate(?!.* --(?:seeds|prompts)) (.*)$", r"kvatlas evaluate \1 --seeds 1"),
]
# What these are given besides, with the tiny model: its random numbers answer nothing, which is refused without
# --force, and few trials are enough.
BESIDES = {"calibrate auto": "--force --new 4 --candidates 2 --finalists 1", "calibrate": "--force --new 4",
           "evaluate": "--new 4 --time-steps 0"}
# A gate judges answers, and refuses a model that has none: it runs on the demo's model, on a document of that model, and
# is given nothing that changes what is refused.
JUDGED = {"M": str(DEMO_MODEL), "policy.json": "judged.json"}
# Not run, by how the command begins or what it holds; of these the words are looked up alone.
NOT_RUN = [
    (r"^mpirun|^srun", "needs several processes; tests/property runs them where MPI is"),
    (r"^kvatlas view\b", "opens a window; tests/gui drives it"),
    (r"^kvatlas demo\b", "takes minutes, and the wheel: tests/interop/test_wheel.py runs it"),
    (r"…|\.\.\.|\[|\||\bFORMAT\b|\bPOLICY\b", "a form to fill in"),
]
# Commands behind alternatives, the last of which wrote what they cannot take: the prepared file is laid there anew.
ANEW = [(r"inspect policy.json .*--as vllm", "policy.json")]
# What a page's files must say once its commands have run.
SAYS = {("docs/releases.md", "verdict.xml"): ('<testsuites tests="1" failures="1" errors="0" skipped="0">',
                                              '<failure message="FAILED: dynamickv')}


def blocks(text: str) -> list[str]:
    """The lines of indented and fenced blocks, continued ones joined."""
    lines, fenced = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            line = line.strip().removeprefix("$ ")
            if lines and lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1].rstrip() + " " + line
            else:
                lines.append(line)
    return lines


def commands(text: str) -> list[str]:
    found = []
    for line in blocks(text):
        line = line.removeprefix("build/bin/")
        if re.match(r"(kvatlas|mpirun|srun|\./dev) ", line):
            # Two in one line stand apart.
            found += re.split(r" {4,}(?=mpirun|srun)", line)
    return found


def unknown_messages() -> list[str]:
    """Messages of docs/troubleshooting.md that no source has; "…" stands for what differs."""
    folders = ("analyzer", "base", "calibrate", "data", "export", "kernels", "viewer")
    sources = [ROOT / "main.cpp", *(path for folder in folders for path in (ROOT / folder).rglob("*.[ch]pp"))]
    # Literals that follow each other are one.
    texts = [re.sub(r'"\s*"', "", path.read_text()) for path in sources]
    rows = re.findall(r"(?m)^\| `([^`]+)` \|", (ROOT / "docs/troubleshooting.md").read_text())
    assert len(rows) > 30
    return [row for row in rows
            if not any(all(part.strip() in text for part in row.split("…")) for text in texts)]


def broken_links() -> list[str]:
    """Links between the pages that lead to no file, or to no heading of it."""
    broken = []
    for page in PAGES:
        for file, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", (ROOT / page).read_text()):
            target = (ROOT / page).parent / file if file else ROOT / page
            if "://" in file or (target.exists() and not anchor):
                continue
            headings = re.findall(r"(?m)^#+ (.*)$", target.read_text()) if target.exists() else []
            if anchor not in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]:
                broken.append(f"{page}: {file}#{anchor}")
    return broken


class Runner:
    def __init__(self, program: Path, reference: Path, folder: Path) -> None:
        self.program, self.folder = program.resolve(), folder
        self.options: dict[str, set[str]] = {}
        self.learn(json.loads(reference.read_text()))
        # The one command that is Python's.
        demo = [sys.executable, ROOT / "export/python/program/kvatlas/demo.py", "--help"]
        said = subprocess.run(demo, capture_output=True, text=True, check=True).stdout
        self.options["kvatlas demo"] = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", said))
        dev = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
        self.dev = set(re.findall(r"^  ([a-z]+)\b.*  ", dev, re.M))

    def learn(self, command: dict) -> None:
        self.options[command["name"]] = {name for option in command["options"] for name in option["names"]}
        for part in command["commands"]:
            self.learn(part)

    def start(self, words: list[str], folder: Path) -> tuple[int, str]:
        words = [str(self.program) if word == "kvatlas" else word for word in words]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=900)
        return done.returncode, done.stderr

    def prepare(self) -> None:
        """What the pages take as given, in one folder: models, profiles, a policy, prompts, others' patterns."""
        given = self.folder / "given"
        tiny_checkpoint.write(given / "M", seed=1)
        shutil.copy(given / "M/config.json", given)
        prompts = [json.dumps({"context": f"The number of box {n} is {n * 7}. " * 40, "input": f"Box {n}?",
                               "answers": [str(n * 7)]}) for n in range(6)]
        for name in ("mine.jsonl", "questions.jsonl", "F.jsonl"):
            (given / name).write_text("\n".join(prompts) + "\n")
        shutil.copy(ROOT / "tests/unit/data/longbench.jsonl", given / "LONGBENCH.jsonl")
        shutil.copytree(ROOT / "tests/golden/data/certify", given / "results")
        layers, heads, kv_heads = tiny_checkpoint.LAYERS, tiny_checkpoint.HEADS, tiny_checkpoint.KV_HEADS
        pattern = given / "attn_patterns/Llama-3"
        pattern.mkdir(parents=True)
        (pattern / "config.json").write_text(json.dumps({"sink_size": 64, "recent_size": 256}))
        (pattern / "full_attention_heads.tsv").write_text("\n".join(
            "\t".join(str((layer * 3 + head) % 7 / 7) for head in range(kv_heads)) for layer in range(layers)) + "\n")
        (given / "heads.json").write_text(json.dumps(
            {f"{layer}-{head}": [(layer * 5 + head) % 9 / 9] for layer in range(layers) for head in range(heads)}))
        (given / "Phi_3_best_pattern.json").write_text(json.dumps(
            [{str(head): ["stream_llm" if (layer + head) % 2 else "vertical_and_slash", 64, 256, 0.5]
              for head in range(32)} for layer in range(32)]))
        for name, seed in (("p.h5", "0"), ("q.h5", "7")):
            self.must(f"kvatlas profile --model M --task needle --task passkey --lengths 600 --seeds 1 --map-samples 1 "
                      f"--seed {seed} -o {name}", given)
        self.must(f"kvatlas profile --model '{DEMO_MODEL}' --task needle --lengths 400 --depths 0.5 --seeds 6 --capture lazy "
                  "-o judged.h5", given)
        self.must("kvatlas calibrate simlayerkv -p judged.h5 --threshold 0.95 --recent 256 -o judged.json", given)
        shutil.copy(given / "p.h5", given / "before.h5")
        shutil.copy(given / "q.h5", given / "after.h5")
        self.must("kvatlas calibrate all -p p.h5 --model M --recent 256 --pod-initial 16 --pod-recent 240 "
                  "--lags 64,128 --ratios 1/2 --deltas 0.5,0.7 --new 4 --force -o policy.json", given)

    def must(self, command: str, folder: Path) -> None:
        status, said = self.start(shlex.split(command), folder)
        if status != 0:
            sys.exit(f"{command}\nended with {status}: {said}")

    def page(self, page: str) -> tuple[str, int]:
        """What became of its commands, and how many failed."""
        said, failures = [], 0
        folder = self.folder / page.replace("/", "-")
        found = commands((ROOT / page).read_text())
        if found:
            shutil.copytree(self.folder / "given", folder)
        for command in found:
            started = time.monotonic()
            problem = self.command(command, folder)
            failures += bool(problem)
            said.append(f"{'FAILED' if problem else f'{time.monotonic() - started:4.1f} s'} {page}: {command}{problem}")
        for (of_page, file), texts in SAYS.items():
            for text in texts:
                if of_page == page and text not in (folder / file).read_text():
                    failures += 1
                    said.append(f"FAILED {page}: {file} does not say {text}")
        return "".join(line + "\n" for line in said), failures

    def command(self, line: str, folder: Path) -> str:
        """What went wrong; "" if nothing did."""
        line, _, comment = line.partition(" #")
        if line.startswith("./dev"):
            name = line.split()[1]
            return "" if name in self.dev else f"\n  ./dev has no command {name}"
        for pattern, _ in NOT_RUN:
            if re.search(pattern, line.strip()):
                return self.look_up(line[line.index("kvatlas"):])
        expected = {int(status) for status in re.findall(r"\d", "".join(re.findall(r"exit \d(?: or \d)?", comment)))}
        line = " ".join(self.word(word) for word in shlex.split(line))
        line = re.sub(r" '>' \S+$", "", line)
        for pattern, file in ANEW:
            if re.search(pattern, line):
                shutil.copy(self.folder / "given" / file, folder)
        for pattern, smaller in SMALLER:
            line = re.sub(pattern, smaller, line)
        words = shlex.split(line)
        if line.startswith("kvatlas check ") and "M" in words:
            words = [JUDGED.get(word, word) for word in words] + ["--most-samples", "70"]  # where it stays open
        if "--force" not in words:
            self.clear_output(words, folder)
        besides = next((more for command, more in BESIDES.items() if line.startswith(f"kvatlas {command} ")), "")
        if "M" in words:
            words += [word for word in besides.split() if word != "--force" or word not in words]
        status, said = self.start(words, folder)
        return "" if status in (expected or {0}) else f"\n  ended with {status}: {said}"

    @staticmethod
    def word(word: str) -> str:
        return shlex.quote(str(DEMO_MODEL) if word == "$MODEL" else WORDS.get(word, word))

    @staticmethod
    def clear_output(words: list[str], folder: Path) -> None:
        for option in ("-o", "--output"):
            if option in words:
                output = folder / words[words.index(option) + 1]
                shutil.rmtree(output, ignore_errors=True)
                output.unlink(missing_ok=True)

    def look_up(self, line: str) -> str:
        """Whether its commands and options are there."""
        words = re.findall(r"(?<![\w-])-{1,2}[a-z][\w-]*|[\w-]+", line)
        names = ["kvatlas"]
        for word in words[1:]:
            below = [f"{name} {word}" for name in names if f"{name} {word}" in self.options]
            if not below:  # one of several, as "pod" in "simlayerkv|pod"
                below = [name for name in names if name.rpartition(" ")[0] + " " + word in self.options]
                if not below:
                    break
            names = below
        missing = [word for word in words if word.startswith("-") and
                   not any(word in self.options[name] for name in names)]
        if names == ["kvatlas"]:
            return "\n  no such command"
        return f"\n  no such option: {', '.join(missing)}" if missing else ""


def main() -> None:
    program, reference = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(program, reference, Path(folder))
        runner.prepare()
        failures = 0
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for said, failed in pool.map(runner.page, sys.argv[3:] or PAGES):
                print(said, end="", flush=True)
                failures += failed
    wrong = [f"docs/troubleshooting.md: no source says {message}" for message in unknown_messages()]
    wrong += [f"{link} leads nowhere" for link in broken_links()]
    failures += len(wrong)
    for line in wrong:
        print(f"FAILED {line}")
    sys.exit(f"{failures} failed" if failures else 0)


if __name__ == "__main__":
    main()
