# SPDX-License-Identifier: Apache-2.0
"""Runs test files (or folders of them) in the environment of ./dev interop; a test that is left out counts as failed."""

import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

sys.dont_write_bytecode = True
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all of it runs on a CPU
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TQDM_DISABLE"] = "1"


class Timed(unittest.TextTestResult):
    """Says of each test how long it took, for all of them together have to fit into one run of CI."""

    def startTest(self, test: unittest.TestCase) -> None:
        self.started = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:
        unittest.TestResult.addSuccess(self, test)
        self._write_status(test, f"ok, {time.monotonic() - self.started:.1f} s")


def suite_of(name: str) -> unittest.TestSuite:
    """A file of this folder, or a path from the root of the repository."""
    path = ROOT / name if "/" in name else HERE / name
    if not path.exists():
        sys.exit(f"interop: there is no {path}")
    folder, pattern = (path, "test*.py") if path.is_dir() else (path.parent, path.name)
    return unittest.TestLoader().discover(str(folder), pattern, top_level_dir=str(folder))


def main() -> int:
    sys.path[:0] = [str(HERE), str(ROOT / "export/python")]
    with tempfile.TemporaryDirectory(prefix="kvatlas-interop-") as folder:
        tempfile.tempdir = folder  # what the tests write goes with it
        suite = unittest.TestSuite(suite_of(name) for name in sys.argv[1:])
        result = unittest.TextTestRunner(verbosity=2, resultclass=Timed).run(suite)
    if result.testsRun == 0:
        sys.exit("interop: no tests ran")
    if result.skipped:
        sys.exit(f"interop: {len(result.skipped)} tests were left out")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
