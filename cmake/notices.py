#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""notices.py PROGRAM… prints the notice of what the programs are made of beside kvatlas' own code: Debian's packages of
the libraries that they load and of the headers that are compiled in, with versions and licences, as the packages say."""
import re
import subprocess
import sys
from pathlib import Path

COMPILED_IN = ["libcli11-dev", "libeigen3-dev", "libvalijson-dev", "nlohmann-json3-dev"]
LOADED = re.compile(r"(\S+) => (\S+)")


def output(*words: str) -> str:
    """What a command says; "" if it fails, or is not there."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def package_of(library: str) -> str:
    for path in (library, str(Path(library).resolve()), library.removeprefix("/usr")):
        if found := output("dpkg-query", "-S", path):
            return found.split(":")[0]
    return ""


def licences(package: str) -> str:
    """The names of the licences in the package's copyright file, or where they stand."""
    file = Path("/usr/share/doc") / package / "copyright"
    text = file.read_text(errors="replace") if file.exists() else ""
    names = sorted(set(re.findall(r"^License:\s*([\w.+ -]{1,60})$", text, re.M)))
    return ", ".join(names) if names else f"see {file}"


def main() -> None:
    packages: dict[str, set[str]] = {name: set() for name in COMPILED_IN}
    others = set()
    for program in sys.argv[1:]:
        for name, path in LOADED.findall(output("ldd", program)):
            package = package_of(path) if path.startswith(("/lib", "/usr")) else ""
            if package:
                packages.setdefault(package, set()).add(Path(program).name)
            else:
                others.add(name)
    print("kvatlas is licensed under Apache-2.0 (LICENSE). Its programs are linked with, or contain, what is listed here.\n"
          "kvatlas-viewer is a program of its own because Qt Charts is under GPL-3.0: whoever passes that program on does so\n"
          "under the GPL's terms. kvatlas itself loads no Qt.\n")
    for package, programs in sorted(packages.items()):
        version = output("dpkg-query", "-W", "-f", "${Version}", package) or "version unknown"
        use = f"loaded by {' and '.join(sorted(programs))}" if programs else "headers, compiled in"
        print(f"{package} {version}, {use}: {licences(package)}")
    if others:
        print("\nOf no package of Debian, but of LibTorch (BSD-3-Clause) and the CUDA runtime (NVIDIA's licence), whose own packages\n"
              f"list what they contain, or of unknown origin: {', '.join(sorted(others))}")


main()
