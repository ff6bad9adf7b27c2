# SPDX-License-Identifier: Apache-2.0
"""The wheel: the project's version, the same bytes each time, and a package that runs from it."""

import base64
import csv
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

import small_support as support  # finds the package
import kvatlas_transformers

PROJECT = pathlib.Path(support.__file__).resolve().parent.parent


class Wheel(unittest.TestCase):
    def build(self, folder: str) -> pathlib.Path:
        out = subprocess.run(
            [sys.executable, PROJECT / "build_wheel.py", folder], check=True, capture_output=True, text=True
        )
        return pathlib.Path(out.stdout.strip())

    def test_versions_agree(self):
        cmake = (PROJECT.parent.parent / "CMakeLists.txt").read_text()
        self.assertEqual(re.search(r"project\(kvatlas VERSION ([\d.]+)", cmake)[1], kvatlas_transformers.__version__)
        self.assertIn(f'version = "{kvatlas_transformers.__version__}"', (PROJECT / "pyproject.toml").read_text())

    def test_is_reproducible_and_runs(self):
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            wheel = self.build(first)
            self.assertEqual(wheel.name, f"kvatlas_transformers-{kvatlas_transformers.__version__}-py3-none-any.whl")
            self.assertEqual(wheel.read_bytes(), self.build(second).read_bytes())
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
            code = f"import sys; sys.path.insert(0, {str(wheel)!r}); import kvatlas_transformers; "
            code += "print(kvatlas_transformers.__file__)"
            out = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
            self.assertTrue(out.stdout.startswith(str(wheel)))


if __name__ == "__main__":
    unittest.main()
