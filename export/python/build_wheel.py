#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the wheels of kvatlas_transformers and kvatlas_vllm into a folder: equal sources give equal bytes, and nothing is fetched."""

import argparse
import base64
import hashlib
import pathlib
import re
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PROJECTS = (HERE, HERE / "vllm")  # each with a pyproject.toml, whose lines the patterns below look for


def setting(text: str, name: str) -> str:
    return re.search(rf'^{name} = "(.*)"$', text, re.MULTILINE)[1]


def listed(text: str, name: str) -> list[str]:
    return re.findall(r'"([^"]+)"', re.search(rf"^{name} = \[(.*)\]$", text, re.MULTILINE)[1])


def metadata(folder: pathlib.Path, project: str) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {setting(project, 'name')}",
        f"Version: {setting(project, 'version')}",
        f"Summary: {setting(project, 'description')}",
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        f"Requires-Python: {setting(project, 'requires-python')}",
        *(f"Requires-Dist: {need}" for need in listed(project, "dependencies")),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (folder / "README.md").read_text("utf-8")


def entry_points(project: str) -> str:
    groups = re.findall(r'^\[project\.entry-points\."(.+)"\]\n((?:\w+ = ".+"\n)+)', project, re.MULTILINE)
    return "".join(f"[{group}]\n" + lines.replace('"', "") for group, lines in groups)


def write_wheel(project_folder: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    project = (project_folder / "pyproject.toml").read_text("utf-8")
    version, (package,) = setting(project, "version"), listed(project, "packages")
    info = f"{package}-{version}.dist-info"
    sources = sorted(path for path in (project_folder / package).iterdir() if path.suffix in (".py", ".json"))
    files = {f"{package}/{path.name}": path.read_bytes() for path in sources}
    files[f"{info}/licenses/LICENSE"] = (HERE.parent.parent / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = metadata(project_folder, project).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: kvatlas\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if points := entry_points(project):
        files[f"{info}/entry_points.txt"] = points.encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

    out = folder / f"{package}-{version}-py3-none-any.whl"
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w") as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            # Stored: the bytes of compressed data differ between zlib's versions.
            wheel.writestr(entry, data, zipfile.ZIP_STORED)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where to write it; made if missing")
    to = pathlib.Path(parser.parse_args().folder)
    print(*(write_wheel(project, to) for project in PROJECTS))
