#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the program on a tiny model while things go wrong, and says what held.

After each fault: no corrupted output, no partial file under a final name, a message in one sentence, earlier results
intact, and a run that goes on (or begins again) leaves the bytes of an undisturbed one. A row that does not hold fails.
"""
import argparse
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import rows  # noqa: E402
import surroundings  # noqa: E402
from checks import Row
from scene import FAULTS_OF, DemoScene, EmulatedScene, Scene

FAULTS = {
    "kill": rows.kills, "disk": rows.disk_full, "read": rows.read_errors, "memory": rows.out_of_memory,
    "cgroup": rows.out_of_group_memory, "clock": rows.clock_jumps, "changes": surroundings.inputs_change,
    "two": surroundings.two_processes, "terminal": surroundings.terminal_goes, "rank": surroundings.rank_lost,
    "demo": surroundings.demo_fails, "gpu": surroundings.device_fails,
}


def table(found: list[Row]) -> str:
    lines = ["| fault | command | cases | how they ended | held |",
             "|---|---|---|---|---|"]
    for row in found:
        ends = row.left_out or ", ".join(f"{count} {end}" for end, count in sorted(row.ends.items()))
        held = "left out" if row.left_out else "yes" if row.passed() else "**no**"
        lines.append(f"| {row.fault} | `{row.command}` | {row.cases()} | {ends} | {held} |")
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path("build/bin/kvatlas"))
    parser.add_argument("--emulated", type=Path, default=Path("build/tests/kvatlas_emulated"),
                        help="the program whose kernels run on the emulated device, for the fault gpu")
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs of profile; half as many of each other")
    parser.add_argument("--cases", type=int, default=12, help="cases of each other fault")
    parser.add_argument("--only", action="append", choices=sorted(FAULTS), help="this fault alone; may be repeated")
    parser.add_argument("--command", action="append", choices=list(FAULTS_OF),
                        help="this command alone; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--report", type=Path, help="write the table to this file")
    return parser.parse_args()


def rows_of(scene: Scene, names: list[str], wanted: argparse.Namespace) -> list[Row]:
    found = []
    try:
        for name in names:
            for job in scene.jobs.values():
                if (wanted.command and job.name not in wanted.command) or name not in FAULTS_OF[job.name]:
                    continue
                count = wanted.cases if name != "kill" else wanted.kills if job.name == "profile" else wanted.kills // 2
                row = FAULTS[name](scene, job, max(1, count))
                found.append(row)
                state = row.left_out or ("held" if row.passed() else "FAILED")
                print(f"faults: {row.fault}, {job.name}: {row.cases()} cases, {state}", file=sys.stderr, flush=True)
                for problem in row.problems:
                    print(f"faults:   {problem}", file=sys.stderr, flush=True)
    finally:
        scene.remove()
    return found


def main() -> int:
    wanted = arguments()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's children would ignore the one that a fault sends
    began = time.monotonic()
    tried = {name for command in wanted.command or FAULTS_OF for name in FAULTS_OF[command]}
    names = [name for name in wanted.only or FAULTS if name in tried]
    program = wanted.program.resolve()
    found: list[Row] = []
    if plain := [name for name in names if name not in ("demo", "gpu")]:
        found += rows_of(Scene(program, wanted.seed), plain, wanted)
    if "demo" in names:
        found += rows_of(DemoScene(program, wanted.seed), ["demo"], wanted)
    if "gpu" in names and not wanted.emulated.exists():
        found += [Row("a GPU that fails (emulated)", "all", left_out=f"{wanted.emulated} is not built")]
    elif "gpu" in names:
        found += rows_of(EmulatedScene(program, wanted.emulated.resolve(), wanted.seed), ["gpu"], wanted)
    text = table(found)
    print(text, end="")
    print(f"faults: seed {wanted.seed}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    if wanted.report:
        wanted.report.write_text(text)
    return 0 if found and all(row.passed() or row.left_out for row in found) and any(map(Row.passed, found)) else 1


if __name__ == "__main__":
    sys.exit(main())
