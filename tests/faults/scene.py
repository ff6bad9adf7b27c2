# SPDX-License-Identifier: Apache-2.0
"""What the faults happen to: a tiny model, prompts, commands, and what each leaves when nothing goes wrong."""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import tiny_checkpoint

PATIENCE = 300  # seconds until a run that should have ended has hung
# What each command is tried with.
FAULTS_OF = {
    "profile": ("kill", "disk", "read", "memory", "cgroup", "clock", "changes", "two", "terminal", "rank", "gpu"),
    "calibrate": ("kill", "disk", "read", "memory", "changes", "two", "terminal", "gpu"),
    "auto": ("kill", "disk", "read", "clock", "two", "terminal"),
    "export": ("kill", "disk", "read", "two", "terminal"),
    "precision": ("kill", "disk", "read", "two"),
    "evaluate": ("kill", "disk", "read", "two", "gpu"),
    "check": ("kill", "disk", "read", "two", "gpu"),
    "report": ("kill", "disk", "read", "two"),
    "kept": ("kill", "disk", "read", "two"),
    "demo": ("demo",),
}


@dataclass
class Run:
    """How a run of the program ended."""
    status: int  # the exit code; below 0: the signal that ended it
    out: str
    err: str

    def last_line(self) -> str:
        lines = [line for line in self.err.replace("\r", "\n").splitlines() if line.strip()]
        return lines[-1] if lines else ""


@dataclass
class Job:
    """A command and the file or folder that it leaves."""
    name: str
    words: list[str]  # without the output
    output: str
    resumes: bool
    option: str = "-o"  # that names the output
    removes_earlier: bool = False  # an earlier verdict must not be taken for this run's
    beside_inputs: bool = False  # the faults are at what it writes beside the profile
    reference: dict[str, bytes] = field(default_factory=dict)  # by path below the output's folder
    seconds: float = 0
    writes: int = 0
    reads: int = 0


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def is_temporary(name: str) -> bool:
    """What a killed process may leave: never under the name of a result."""
    return name.endswith((".tmp", ".trials.jsonl")) or ".h5.parts/" in name


class Scene:
    def __init__(self, program: Path, seed: int, layers: int = tiny_checkpoint.LAYERS, prompts: int = 12, new: int = 6):
        """A model of so many layers, and so many prompts, whose answers have so many tokens."""
        self.program = program
        self.new = str(new)
        self.random = random.Random(seed)
        self.root = Path(tempfile.mkdtemp(prefix="kvatlas-faults-"))
        self.inputs = self.root / "inputs"
        self.work = self.root / "work"
        self.shim = self.root / "shim.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.shim, Path(__file__).parent / "shim.c", "-ldl"],
                       check=True)
        self.inputs.mkdir()
        self.model = tiny_checkpoint.write(self.inputs / "model", 1, layers)
        self.prompts = self.inputs / "prompts.jsonl"
        self.profile, self.policy = self.inputs / "p.h5", self.inputs / "policy.json"
        self.write_prompts(prompts)
        self.jobs = self.make_jobs()

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def write_prompts(self, count: int) -> None:
        """Prompts whose answers are what the model itself writes, so that the full cache scores 1."""
        draw = random.Random(5)
        words = "one red apple stone river key lamp door".split()
        prompts = [{"id": f"p{i}", "text": " ".join(draw.choice(words) for _ in range(24 + 3 * i))} for i in range(count)]
        self.prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        said = self.run(["generate", "--model", self.model, "--prompts", self.prompts, "--new", self.new, "--json"])
        assert said.status == 0, said.err
        for prompt, line in zip(prompts, said.out.splitlines(), strict=True):
            prompt |= {"answers": [json.loads(line)["text"]]}
        self.prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))

    def list_jobs(self) -> list[Job]:
        profile, policy = str(self.profile), str(self.policy)
        model = ["--model", str(self.model), "--threads", "1"]
        auto = ["calibrate", "auto", "--kv-saving", "0.5", "--context", "300", "--max-loss", "95", "--candidates", "5"]
        return [
            Job("profile", ["profile", *model, "--prompts", str(self.prompts), "--lags", "16,32", "--budgets", "24,40",
                            "--new", self.new, "--map-samples", "1"], "p.h5", True),
            Job("calibrate", ["calibrate", "lagkv", "-p", profile, *model, "--lags", "16,32", "--ratios",
                              "1/2,1/4", "--tolerance", "1"], "policy.json", True),
            Job("auto", [*auto, "-p", profile, *model], "policy.json", True),
            Job("export", ["export", policy, "--to", "all"], "out", False),
            Job("precision", ["calibrate", "precision", "-p", profile, *model, "--sensitivity-texts", "1", "--tolerance", "1"],
                "policy.json", True),
            Job("evaluate", ["evaluate", "--policy", policy, *model, "--prompts", str(self.prompts), "--new", self.new,
                             "--time-steps", "0"], "measured.json", False),
            Job("check", ["check", policy, *model, "--prompts", str(self.prompts), "--new", self.new, "--max-loss",
                          "100", "--by-mean", "--force"], "verdict.xml", False, "--junit", removes_earlier=True),
            Job("report", ["report", profile, policy], "report.html", False),
            Job("kept", [*auto, "-p", profile, *model], "policy.json", True, beside_inputs=True),
        ]

    def make_jobs(self) -> dict[str, Job]:
        jobs = {job.name: job for job in self.list_jobs()}
        for job in jobs.values():
            if job.name == "kept":
                self.leave_no_room(job)
            self.make_reference(job)
            if job.name == "profile":
                shutil.copy(self.work / job.output, self.profile)
            if job.name == "calibrate":
                shutil.copy(self.work / job.output, self.policy)
            job.writes = self.count(job, self.write_fault(job))
            job.reads = self.count(job, self.fault("read", self.inputs))
        return jobs

    def leave_no_room(self, job: Job) -> None:
        """Just enough memory for the command, and so none in which it could keep the prompts."""
        self.clean()
        refused = self.run(self.start_of(job, "--memory-budget", "1MiB"))
        needed = re.search(r"need about (\d+) MiB", refused.err)
        assert needed, refused.err
        job.words += ["--memory-budget", f"{int(needed[1]) + 2}MiB"]

    def make_reference(self, job: Job) -> None:
        self.clean()
        began = time.monotonic()
        self.succeed(self.start_of(job))
        job.seconds = time.monotonic() - began
        job.reference = files_below(self.work)

    def count(self, job: Job, fault: dict[str, str]) -> int:
        """At how many places this fault can come."""
        self.clean()
        counted = self.root / "count"
        self.succeed(self.start_of(job), fault | {"KVATLAS_FAULT_COUNT": str(counted)})
        if files_below(self.work) != job.reference:
            raise SystemExit(f"{job.name} does not leave the same bytes twice")
        return int(counted.read_text())

    def start_of(self, job: Job, *more: str) -> list[str]:
        return [*job.words, job.option, str(self.work / job.output), *more]

    def clean(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()

    def put_earlier(self, job: Job) -> dict[str, bytes]:
        """An earlier result in the output's place, another than the run's."""
        self.clean()
        if job.name == "profile":
            self.succeed(self.start_of(job, "--sink", "4"))
            return files_below(self.work)
        earlier = {name: b"earlier " + content for name, content in job.reference.items()}
        for name, content in earlier.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return earlier

    def fault(self, kind: str, under: Path, at: int = 0, error: int = 0) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.shim), "KVATLAS_FAULT": kind, "KVATLAS_FAULT_UNDER": str(under),
                "KVATLAS_FAULT_AT": str(at), "KVATLAS_FAULT_ERROR": str(error)}

    def write_fault(self, job: Job, at: int = 0, error: int = 0) -> dict[str, str]:
        return self.fault("write", self.inputs if job.beside_inputs else self.work, at, error)

    def begin(self, words: list, more: dict[str, str] | None = None, **how) -> subprocess.Popen:
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | (more or {})
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
        return subprocess.Popen([str(self.program), *map(str, words)], env=environment, text=True, errors="replace",
                                start_new_session=True, **how)

    def end(self, process: subprocess.Popen) -> Run:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return Run(-999, "", "the program hangs")
        return Run(process.returncode, out or "", err or "")

    def run(self, words: list, more: dict[str, str] | None = None, **how) -> Run:
        return self.end(self.begin(words, more, **how))

    def succeed(self, words: list, more: dict[str, str] | None = None) -> Run:
        run = self.run(words, more)
        if run.status != 0:
            raise SystemExit(f"without a fault, this fails with {run.status}: {' '.join(map(str, words))}\n{run.err}")
        return run


class EmulatedScene(Scene):
    """The kernels run on the emulated device, which is slow: a smaller model, and fewer and shorter runs."""

    def __init__(self, program: Path, emulated: Path, seed: int):
        self.emulated = emulated
        super().__init__(program, seed, layers=4, prompts=5, new=1)

    def list_jobs(self) -> list[Job]:
        return [job for job in super().list_jobs() if "gpu" in FAULTS_OF[job.name]]

    def make_jobs(self) -> dict[str, Job]:
        jobs = super().make_jobs()
        self.program = self.emulated
        for job in jobs.values():
            self.make_reference(job)
        return jobs


class DemoScene(Scene):
    """The whole of `kvatlas demo`, as the wheel runs it, on a model that is quick."""

    def __init__(self, program: Path, seed: int):
        super().__init__(program, seed, layers=4, prompts=1, new=1)

    def make_jobs(self) -> dict[str, Job]:
        demo = Path(__file__).resolve().parents[2] / "export/python/program/kvatlas/demo.py"
        script = self.root / "demo"
        script.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{demo}' --program '{self.program}' \"$@\"\n")
        script.chmod(0o755)
        self.steps, self.program = self.program, script
        job = Job("demo", ["-m", str(self.model), "--force"], "demo", False)
        self.make_reference(job)
        return {job.name: job}
