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
    """What a command says; "" if it is not there."""
    try:
        return subprocess.run(words, capture_output=True, text=True).stdout
    except OSError:
        return ""


def loaded(program: str) -> dict[str, str]:
    """The libraries that a program loads, and those that they load: the path of each by its name."""
    return dict(LOADED.findall(output("ldd", program)))


def of_system(path: str) -> bool:
    return path.startswith(("/lib", "/usr"))


def packages_of_files(files: set[str]) -> dict[str, str]:
    """The package that each file is of; those of none are left out. Links and files of /usr have two names."""
    names = {file: (file, str(Path(file).resolve()), file.removeprefix("/usr")) for file in files}
    said = output("dpkg-query", "-S", *sorted({name for given in names.values() for name in given})) if files else ""
    owners = {path: package.split(":")[0].split(",")[0] for package, path in re.findall(r"^(\S.*?): (/.*)$", said, re.M)}
    found = {file: next((owners[name] for name in given if name in owners), "") for file, given in names.items()}
    return {file: package for file, package in found.items() if package}


def copyright_of(package: str) -> Path:
    return Path("/usr/share/doc") / package / "copyright"


def licences(package: str) -> str:
    """The names of the licences in the package's copyright file, or where they stand."""
    file = copyright_of(package)
    text = file.read_text(errors="replace") if file.exists() else ""
    names = sorted(set(re.findall(r"^License:\s*([\w.+ -]{1,60})$", text, re.M)))
    return ", ".join(names) if names else f"see {file}"


def packages_of(programs: list[str]) -> tuple[dict[str, set[str]], set[str]]:
    """The packages that the programs are made of, with the names of the programs that load them (none: compiled in), and
    the libraries that are of no package."""
    packages: dict[str, set[str]] = {name: set() for name in COMPILED_IN}
    others = set()
    found = {program: loaded(program) for program in programs}
    owners = packages_of_files({path for paths in found.values() for path in paths.values() if of_system(path)})
    for program, paths in found.items():
        for name, path in paths.items():
            if path in owners:
                packages.setdefault(owners[path], set()).add(Path(program).name)
            else:
                others.add(name)
    return packages, others


def cuda_of(program: str) -> str:
    """The version of CUDA whose runtime is compiled in; "" if none is."""
    found = re.search(r"CUDA ([\d.]+)", output(program, "--version"))
    return found[1] if found else ""


def notice(packages: dict[str, set[str]], others: set[str], cuda: str) -> str:
    text = (
        "kvatlas is licensed under Apache-2.0 (LICENSE). Its programs are linked with, or contain, what is listed here.\n"
        "kvatlas-viewer is a program of its own because Qt Charts is under GPL-3.0: whoever passes that program on does so\n"
        "under the GPL's terms. kvatlas itself loads no Qt.\n\n"
    )
    for package, programs in sorted(packages.items()):
        version = output("dpkg-query", "-W", "-f", "${Version}", package) or "version unknown"
        use = f"loaded by {' and '.join(sorted(programs))}" if programs else "headers, compiled in"
        text += f"{package} {version}, {use}: {licences(package)}\n"
    if cuda:
        text += f"CUDA runtime {cuda}, compiled in: under NVIDIA's CUDA licence, which lets it be passed on with a program\n"
    if others:
        text += (
            "\nOf no package of Debian, but of LibTorch (BSD-3-Clause) and the CUDA runtime (NVIDIA's licence), whose own packages\n"
            f"list what they contain, or of unknown origin: {', '.join(sorted(others))}\n"
        )
    return text


if __name__ == "__main__":
    print(notice(*packages_of(sys.argv[1:]), cuda_of(sys.argv[1])), end="")
