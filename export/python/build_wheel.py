#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes wheels into a folder: those of kvatlas_transformers and kvatlas_vllm by themselves, or with --program the one of
the program, the viewer and all Python packages. Equal sources and programs give equal bytes, and nothing is fetched."""

import argparse
import base64
import hashlib
import pathlib
import platform
import sys
import tomllib
import zipfile

import bundle

HERE = pathlib.Path(__file__).resolve().parent
PROJECTS = (HERE, HERE / "vllm")  # each with a pyproject.toml
PROGRAM = HERE / "program"  # the wheel that holds the packages of the others too
LICENCE = HERE.parent.parent / "LICENSE"


def read_project(folder: pathlib.Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))


def metadata(folder: pathlib.Path, project: dict, built: bundle.Bundle | None) -> str:
    """Where a program is built in, the need "torch" stands for the torch that serves it."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in ("LICENSE", *(built.licences if built else ()))),
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {need}" for need in project["dependencies"]),
    ]
    for extra, needs in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        wanted = [built.torch if built and need == "torch" else need for need in needs]
        lines += [f'Requires-Dist: {need}; extra == "{extra}"' for need in wanted]
    lines.append("Description-Content-Type: text/markdown")
    return "\n".join(lines) + "\n\n" + (folder / project["readme"]).read_text("utf-8")


def entry_points(projects: list[dict]) -> str:
    groups: dict[str, dict] = {}
    for project in projects:
        if "scripts" in project:
            groups.setdefault("console_scripts", {}).update(project["scripts"])
        for group, points in project.get("entry-points", {}).items():
            groups.setdefault(group, {}).update(points)
    return "".join(
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
        for group, points in groups.items()
    )


def package_files(folder: pathlib.Path, project: dict) -> dict[str, bytes]:
    (package,) = project["tool"]["setuptools"]["packages"]
    sources = sorted(path for path in (folder / package).iterdir() if path.suffix in (".py", ".json", ".typed"))
    sources += [folder / path for path in project["tool"].get("kvatlas", {}).get("shared", ())]
    return {f"{package}/{path.name}": path.read_bytes() for path in sources}


def write_wheel(folder: pathlib.Path, projects: list[pathlib.Path], built: bundle.Bundle | None = None) -> pathlib.Path:
    """The wheel of the first project, with the packages of all of them and what is built for it."""
    read = [read_project(path) for path in projects]
    project = read[0]["project"]
    name = project["name"].replace("-", "_")
    info = f"{name}-{project['version']}.dist-info"
    tag = f"py3-none-manylinux_{platform.libc_ver()[1].replace('.', '_')}_{platform.machine()}" if built else "py3-none-any"
    files: dict[str, bytes] = {}
    for path, parts in zip(projects, read):
        files |= package_files(path, parts)
    if built:
        files |= {f"{name}/{path}": data for path, data in built.files.items()}
        files |= {f"{name}-{project['version']}.data/data/{path}": data for path, data in built.shared.items()}
        files |= {f"{info}/licenses/{path}": data for path, data in built.licences.items()}
    files[f"{info}/licenses/LICENSE"] = LICENCE.read_bytes()
    files[f"{info}/METADATA"] = metadata(projects[0], project, built).encode()
    pure = "false" if built else "true"
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: kvatlas\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    if points := entry_points([parts["project"] for parts in read]):
        files[f"{info}/entry_points.txt"] = points.encode()
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

    out = folder / f"{name}-{project['version']}-{tag}.whl"
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w") as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if path.startswith(f"{name}/{bundle.PROGRAMS}/") else 0o100644) << 16
            # The bytes of compressed data differ between zlib's versions: what is small is stored.
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED if built else zipfile.ZIP_STORED)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="where to write it; made if missing")
    parser.add_argument("--program", type=pathlib.Path, metavar="BUILD", help="the build folder whose program is taken")
    words = parser.parse_args()
    if words.program is None:
        print(*(write_wheel(words.folder, [project]) for project in PROJECTS))
        return
    try:
        built = bundle.gather(words.program)
    except bundle.CannotBundle as error:
        sys.exit(f"build_wheel.py: {error}")
    print(write_wheel(words.folder, [PROGRAM, *PROJECTS], built))


if __name__ == "__main__":
    main()
