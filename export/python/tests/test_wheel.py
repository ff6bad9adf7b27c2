# SPDX-License-Identifier: Apache-2.0
"""The wheels: the project's version, the same bytes each time, and packages that run from them."""

import base64
import csv
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest
import zipfile

import small_support as support  # finds the package
import kvatlas_transformers

PROJECT = pathlib.Path(support.__file__).resolve().parent.parent


class Wheel(unittest.TestCase):
    def build(self, folder: str) -> list[pathlib.Path]:
        out = subprocess.run(
            [sys.executable, PROJECT / "build_wheel.py", folder], check=True, capture_output=True, text=True
        )
        return [pathlib.Path(path) for path in out.stdout.split()]

    def test_versions_agree(self):
        version = kvatlas_transformers.__version__
        cmake = (PROJECT.parent.parent / "CMakeLists.txt").read_text()
        self.assertEqual(re.search(r"project\(kvatlas VERSION ([\d.]+)", cmake)[1], version)
        for file in ("pyproject.toml", "vllm/pyproject.toml", "program/pyproject.toml"):
            self.assertIn(f'version = "{version}"', (PROJECT / file).read_text())
        for file in ("vllm/kvatlas_vllm/__init__.py", "program/kvatlas/__init__.py"):
            self.assertIn(f'__version__ = "{version}"', (PROJECT / file).read_text())

    def test_the_program_and_its_adapter_ask_for_the_same_transformers(self):
        """The wheel of the program (tests/unit/project/wheel_test.py) holds the packages of the others."""
        small = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
        whole = tomllib.loads((PROJECT / "program/pyproject.toml").read_text())["project"]
        needs = [need for need in small["dependencies"] if need.startswith("transformers")]
        self.assertEqual(whole["optional-dependencies"]["transformers"], ["torch", *needs])

    def check_record(self, wheel: pathlib.Path):
        with zipfile.ZipFile(wheel) as files:
            names = files.namelist()
            record = next(name for name in names if name.endswith("/RECORD"))
            for name, digest, size in csv.reader(files.read(record).decode().splitlines()):
                names.remove(name)
                if name != record:
                    expected = base64.urlsafe_b64encode(hashlib.sha256(files.read(name)).digest())
                    self.assertEqual(digest, "sha256=" + expected.rstrip(b"=").decode())
                    self.assertEqual(int(size), len(files.read(name)))
            self.assertEqual(names, [])

    def test_are_reproducible_and_run(self):
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            for package, wheel, again in zip(
                ("kvatlas_transformers", "kvatlas_vllm"), self.build(first), self.build(second), strict=True
            ):
                self.assertEqual(wheel.name, f"{package}-{kvatlas_transformers.__version__}-py3-none-any.whl")
                self.assertEqual(wheel.read_bytes(), again.read_bytes())
                self.check_record(wheel)
                code = f"import sys; sys.path.insert(0, {str(wheel)!r}); import {package} as package; "
                code += "print(package.__file__)"
                out = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
                self.assertTrue(out.stdout.startswith(str(wheel)))

    def test_vllm_finds_its_plugin(self):
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(self.build(folder)[1]) as wheel:
            (points,) = [name for name in wheel.namelist() if name.endswith("/entry_points.txt")]
            self.assertEqual(
                wheel.read(points).decode(),
                "[vllm.general_plugins]\nkvatlas = kvatlas_vllm.plugin:register\n"
                "[vllm.logits_processors]\nkvatlas_forced = kvatlas_vllm.forced:ForcedTokens\n",
            )


if __name__ == "__main__":
    unittest.main()
