# SPDX-License-Identifier: Apache-2.0
"""The command `kvatlas`: becomes the program of this package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from . import program
from .errors import KvatlasError


def main() -> None:
    words = sys.argv[1:]
    try:
        if words[:1] == ["demo"]:
            from . import demo

            sys.exit(demo.main(words[1:]))
        start(words)
    except KvatlasError as error:
        sys.exit(f"kvatlas: {error}")
    finally:
        flush_output()


def flush_output() -> None:
    """What Python itself has printed, such as a help, and cannot be written is no reason for a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python tries again when it ends
        sys.exit(f"kvatlas: writing to stdout failed: {error.strerror}")


def start(words: list[str]) -> None:
    program.built()  # says so if there is no program here
    environment = program.environment("".join(words[:1]))
    command = ["kvatlas", *words]
    if words in ([], ["-h"], ["--help"]):  # the one command that is Python's
        done = subprocess.run(command, executable=program.PROGRAM, env=environment)
        print("\nkvatlas demo does the main job once, on a small model that it fetches.")
        sys.exit(done.returncode)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores, and the program would go on to do so
    try:
        os.execve(program.PROGRAM, command, environment)
    except OSError as error:
        raise KvatlasError(f"{program.PROGRAM} cannot be started: {error.strerror}") from None
