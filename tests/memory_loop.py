#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memory_loop.py {profile,calibrate,window} --build BUILD [--model MODEL] [--minutes 30]: does its memory grow?

Runs one process for so long: a profile of many prompts, a sweep of LagKV that tries many candidates on many prompts, or
the window, in which files come and go. Prints the resident memory in each tenth of the time; the second half must stay
within 2 % of the tenth in its middle."""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def command_of(what: str, build: Path, model: str, folder: Path) -> list:
    program = build / "bin/kvatlas"
    profile = [program, "profile", "--model", model, "-o", folder / "p.h5", "--task", "needle", "--depths", "0.2,0.8"]
    if what == "profile":
        return [*profile, "--lengths", "150,200,250", "--seeds", "400"]
    if what == "calibrate":
        # Many candidates on short prompts, so that each tenth of the time has many prompts: what is held swings with each.
        sweep = ["--lags", "32,64,96", "--ratios", "1/2,1/4,1/8"]
        subprocess.run([*profile, "--lengths", "300", "--seeds", "250", *sweep], check=True, stdout=subprocess.DEVNULL)
        # What is kept of each prompt soon fills its part of the budget, and then goes to the disk.
        return [program, "calibrate", "lagkv", "-p", folder / "p.h5", "-m", model, *sweep, "-o", folder / "policy.json",
                "--memory-budget", "1800MiB"]
    return [build / "tests/gui_soak", "--gtest_filter=Soak.FilesComeAndGo"]


def resident(pid: int) -> int:
    """In KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0  # it has ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["profile", "calibrate", "window"])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--model", help="a small model, for profile and calibrate")
    parser.add_argument("--minutes", type=float, default=30)
    words = parser.parse_args()
    if words.what != "window" and not words.model:
        parser.error(f"{words.what} needs --model")
    with tempfile.TemporaryDirectory() as name:
        command = command_of(words.what, words.build, words.model, Path(name))
        more = {"KVATLAS_SOAK": str(int(60 * words.minutes)), "QT_QPA_PLATFORM": "offscreen"}
        with open(Path(name) / "said.txt", "w+") as said:
            run = subprocess.Popen(command, env=os.environ | more, stdout=said, stderr=said)
            samples, end = [], time.monotonic() + 60 * words.minutes
            while run.poll() is None and time.monotonic() < end:
                samples.append(resident(run.pid))
                time.sleep(1)
            took = len(samples)
            if words.what != "window" and run.poll() is None:
                run.send_signal(signal.SIGINT)
            status = run.wait()
            said.seek(0)
            last = said.read().strip().splitlines()[-3:]
    if took < 10:
        sys.exit(f"{words.what} ended after {took} s with {status}: {' '.join(last)}")
    tenths = [statistics.median(samples[i * took // 10 : (i + 1) * took // 10]) / 1024 for i in range(10)]
    print(f"{words.what}: {took} s, exit {status}; MiB in each tenth:", *(f"{one:.0f}" for one in tenths))
    print(*last, sep="\n")
    most = max(abs(one / tenths[5] - 1) for one in tenths[5:])
    print(f"second half: within {100 * most:.1f} % of the tenth in its middle")
    sys.exit(most > 0.02 or status not in (0, 130))


if __name__ == "__main__":
    main()
