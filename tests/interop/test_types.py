# SPDX-License-Identifier: Apache-2.0
"""The type hints of the package kvatlas pass a checker, as py.typed promises; those of other packages are not its matter."""

import subprocess
import sys
import tempfile
import unittest

import support


class Types(unittest.TestCase):
    def test_the_hints_agree(self):
        with tempfile.TemporaryDirectory(prefix="kvatlas-interop-") as cache:
            words = ["--follow-imports=skip", "--ignore-missing-imports", "--cache-dir", cache, "kvatlas"]
            done = subprocess.run([sys.executable, "-m", "mypy", *words], cwd=support.ROOT / "export/python/program",
                                  capture_output=True, text=True)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
