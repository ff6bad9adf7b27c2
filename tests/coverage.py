#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which lines the tests run, from what the coverage preset counted: tests/coverage.py build-coverage [FOLDER_OR_FILE ...]

Prints a row a folder, and the files with most lines that never ran; with names, those lines of theirs.
"""

import collections
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("analyzer", "base", "calibrate", "data", "export", "kernels", "reference", "viewer")


def counts_of(build: Path) -> dict:
    """How often each line ran, by file."""
    folders = (*PARTS, "CMakeFiles/kvatlas.dir", "tests/emulated_cuda")
    counted = [file for folder in folders for file in (build / folder).rglob("*.gcda")]
    if not counted:
        sys.exit(f"coverage: nothing was counted in {build}: build and test it with the preset coverage")

    def report_of(file: Path) -> bytes:
        return subprocess.run(["gcov", "-j", "-t", file], capture_output=True, cwd=build, check=True).stdout

    lines: dict = collections.defaultdict(collections.Counter)
    with ThreadPoolExecutor() as pool:
        for report in pool.map(report_of, counted):
            for source in json.loads(report)["files"]:
                # Names are from the root of the repository; headers of others are absolute.
                if Path(source["file"]).parts[0] in (*PARTS, "main.cpp"):
                    for line in source["lines"]:
                        lines[source["file"]][line["line_number"]] += line["count"]
    return lines


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    lines = counts_of(Path(sys.argv[1]).resolve())
    never = {name: sorted(line for line, count in of.items() if count == 0) for name, of in lines.items()}
    if names := sys.argv[2:]:
        for name in sorted(name for name in never if name.startswith(tuple(names))):
            text = (ROOT / name).read_text(encoding="utf-8").splitlines()
            for line in never[name]:
                print(f"{name}:{line}: {text[line - 1]}")
        return
    total: dict = collections.defaultdict(lambda: [0, 0])
    for name, of in lines.items():
        for part in (name.split("/")[0], "all"):
            total[part][0] += len(of) - len(never[name])
            total[part][1] += len(of)
    for part, (ran, all_lines) in sorted(total.items()):
        print(f"{part:12} {ran:6} of {all_lines:6} lines ran, {100 * ran / all_lines:.1f} %")
    for name in sorted(never, key=lambda name: -len(never[name]))[:20]:
        print(f"{len(never[name]):5} never did in {name}")


if __name__ == "__main__":
    main()
