#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pin.py FILE… [-- PIP'S OPTIONS]: writes after each NAME==VERSION of requirement files the sha256 of what pip fetches for
it on this machine. Run it after changing a version; pip refuses a file whose hash is another."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

REQUIREMENT = re.compile(r"^([\w.-]+)==(\S+)(?: --hash=\S+)*$", re.M)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes_of(text: str, options: list[str]) -> dict[str, str]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        words = ["install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps", "--only-binary", ":all:", *options]
        done = subprocess.run([sys.executable, "-m", "pip", *words, "--report", "-", "-r", file.name], check=True,
                              stdout=subprocess.PIPE, text=True)
    fetched = json.loads(done.stdout)["install"]
    return {canonical(one["metadata"]["name"]): one["download_info"]["archive_info"]["hashes"]["sha256"] for one in fetched}


def main() -> None:
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    if not words[:end]:
        sys.exit(__doc__)
    for path in map(Path, words[:end]):
        text = REQUIREMENT.sub(r"\1==\2", path.read_text("utf-8"))
        hashes = hashes_of(text, words[end + 1 :])
        path.write_text(REQUIREMENT.sub(lambda one: f"{one[0]} --hash=sha256:{hashes[canonical(one[1])]}", text), "utf-8")
        print(f"{path}: {len(hashes)} pinned")


if __name__ == "__main__":
    main()
