#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that a machine with a GPU can tell of this build, in one report: the tests on the device, compute-sanitizer,
golden profiles, and what kernels and capturing cost beside what the device can do. './dev gpu' builds and runs it.

The steps come in the order of their worth and share the time that --minutes gives; the report is written anew after each,
so a run that is cut keeps what it has found. A step that fails, that skips a test or for which no time is left is no step
that passed: the report says which, and the exit status is 1.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/bench"))
from checkpoint_8b import write_checkpoint  # noqa: E402
from evaluate_vs_kvpress import policies  # noqa: E402
from goal import at_most  # noqa: E402

DEMO_MODEL = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvatlas/SmolLM2-135M-Instruct.Q4_1.gguf"
LAYERS_OF_8B = 8  # each costs the same, so the ratios are those of all 32


class Failed(Exception):
    """Why a step did not pass, in a sentence."""


class Steps:
    def __init__(self, wanted):
        self.build, self.report, self.device = wanted.build.resolve(), wanted.report, wanted.device
        self.ends = time.monotonic() + 60 * wanted.minutes
        self.written = []
        self.missed = []

    def run(self, *command, most=600, **environment):
        """What the command prints; Failed if it ends badly, or not within the time that is left."""
        left = min(most, self.ends - time.monotonic())
        if left < 5:
            raise Failed("no time was left")
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=left,
                                  env={**os.environ, **environment})
        except FileNotFoundError:
            raise Failed(f"{command[0]} is not on this machine") from None
        except subprocess.TimeoutExpired:
            raise Failed(f"{Path(command[0]).name} did not end within {left:.0f} s") from None
        if done.returncode != 0:
            raise Failed(f"{Path(command[0]).name} ended with {done.returncode}:\n" + (done.stdout + done.stderr)[-3000:])
        return done.stdout

    def tests(self, name, only="Gpu/*", before=(), **how):
        """The tests of a program on the device: how many passed. None may be skipped."""
        return f"{self.passed(name, only, before, **how)} of {name}"

    def passed(self, name, only="Gpu/*", before=(), **how):
        out = self.run(*before, self.build / "tests" / name, f"--gtest_filter={only}", "--gtest_brief=1", **how)
        passed = re.search(r"\[  PASSED  \] (\d+) test", out)
        if not passed or int(passed[1]) == 0 or "SKIPPED" in out:
            raise Failed(f"{name} skipped tests or had none:\n{out[-1000:]}")
        return int(passed[1])

    def step(self, title, work):
        began = time.monotonic()
        print(f"gpu: {title}", file=sys.stderr, flush=True)
        try:
            text, status = work(self), "passed"
        except Failed as reason:
            text, status = str(reason), "NOT PASSED"
        if "MISSED" in text:
            self.missed.append(f"{title}: a goal was missed")
        if status != "passed":
            self.missed.append(f"{title}: {text.splitlines()[0]}")
        self.written.append(f"## {title}\n\n{status} in {time.monotonic() - began:.0f} s\n\n{text}\n")
        self.report.write_text("# kvatlas on a GPU\n\n" + "\n".join(self.written))
        print(f"gpu: {title}: {status}", file=sys.stderr, flush=True)


def machine(steps):
    card = steps.run("nvidia-smi", "--query-gpu=name,memory.total,driver_version,clocks.max.sm", "--format=csv,noheader")
    return f"{card}\n```\n{steps.run(steps.build / 'bin/kvatlas', 'doctor')}```\n"


def tests(steps):
    return ", ".join(steps.tests(name) for name in ("unit_kernels", "golden_kernels"))


def families(steps):
    """Side by side: most of a test's time goes into the starts of two programs that open LibTorch."""
    shards = min(8, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(shards) as pool:
        parts = [pool.submit(steps.passed, "golden_gpu", "Gpu/GpuProfile.*", GTEST_TOTAL_SHARDS=str(shards),
                             GTEST_SHARD_INDEX=str(shard)) for shard in range(shards)]
        return f"{sum(part.result() for part in parts)} of golden_gpu"


def trials(steps):
    """Policies tried on tiny checkpoints: what is kept and what is generated beside the processor's."""
    return steps.tests("golden_gpu", "Gpu/GpuTrials.*")


def golden(steps):
    """The real model's profile against other software's values, if the model is on this machine."""
    out = steps.run(steps.build / "tests/golden_profile", "--gtest_brief=1", KVATLAS_TEST_DEVICE=steps.device)
    return out.strip().splitlines()[-1]


def kernels(steps):
    done = json.loads(steps.run(steps.build / "bench/bench_gpu", "--benchmark_format=json", most=150).split("\n", 1)[1])
    rows = [f"| {row['name'].removesuffix('/real_time')} | {row['real_time']:.3g} | {row['label']} |"
            for row in done["benchmarks"]]
    return "\n".join(["| kernel | ms | rate, share of the limit, time beside LibTorch |", "|---|---|---|", *rows])


def capture(steps):
    folder = steps.build / "8b"
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut
    folder.mkdir()
    try:
        write_checkpoint(folder, LAYERS_OF_8B)
        out = steps.run(steps.build / "bench/bench_profile", folder, 4096, 32768, "--device", steps.device,
                        "--dtype", "bfloat16", most=150)
    finally:
        shutil.rmtree(folder)
    rows = ["| tokens | forward s | statistics s, ratio | with columns and maps s, ratio |", "|---|---|---|---|"]
    for row in map(json.loads, out.splitlines()):
        some = row["statistics"]
        goal = f" ({at_most(some['ratio'], 1.1)})" if row["tokens"] == 32768 else ""
        rows.append(f"| {row['tokens']} | {row['plain']['seconds']:.3f} | {some['seconds']:.3f}, {some['ratio']:.2f}{goal} "
                    f"| {row['maps']['seconds']:.3f}, {row['maps']['ratio']:.2f} |")
    return f"{LAYERS_OF_8B} layers of Llama 3.1 8B's shape in bfloat16, random weights.\n\n" + "\n".join(rows)


def decoding(steps):
    """Of the demo model, if it is on this machine: all policies together on one prompt."""
    out = steps.run(steps.build / "bench/bench_evaluate", DEMO_MODEL, 2048, 16, 3,
                    "--device", steps.device, *(text for text, _ in policies()), most=60)
    turns = [json.loads(line) for line in out.splitlines()]
    prefill, decode = (statistics.median(turn[part] for turn in turns) for part in ("prefill", "decode"))
    return (f"{turns[0]['policies']} policies, {turns[0]['tokens']} tokens: prefill {prefill:.2f} s, decoding 16 tokens "
            f"{decode:.2f} s, {decode / prefill:.2f} times that ({at_most(decode / prefill, 1.3)})")


def sanitizer(tool, only):
    def work(steps):
        before = ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9")
        return steps.tests("unit_kernels", only, before, most=150)
    return work


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="the folder of a build with CUDA and LibTorch")
    parser.add_argument("--minutes", type=float, default=9, help="for all steps together (9)")
    parser.add_argument("--report", type=Path, default=Path("gpu-report.md"), help="where the report goes (gpu-report.md)")
    parser.add_argument("--device", default="cuda", help="another one, to try the steps on a machine without a GPU (cuda)")
    steps = Steps(parser.parse_args())
    steps.step("The machine", machine)
    steps.step("The golden profile", golden)
    steps.step("Trials of policies", trials)
    steps.step("What capturing costs", capture)
    steps.step("Kernels", kernels)
    steps.step("Decoding many policies", decoding)
    steps.step("compute-sanitizer memcheck", sanitizer("memcheck", "Gpu/*"))
    steps.step("Tests on the device", tests)
    steps.step("Profiles of every family", families)
    # Slower by far: the families that share memory between threads.
    for tool in ("racecheck", "synccheck", "initcheck"):
        steps.step(f"compute-sanitizer {tool}", sanitizer(tool, "Gpu/JsDivergence*:Gpu/LastRows*:Gpu/AttentionMaps*"))
    print(f"gpu: the report is {steps.report}", file=sys.stderr)
    for line in steps.missed:
        print(f"gpu: {line}", file=sys.stderr)
    return 1 if steps.missed else 0


if __name__ == "__main__":
    sys.exit(main())
