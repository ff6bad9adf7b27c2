# SPDX-License-Identifier: Apache-2.0
"""The package's modules use each other in one direction: a drawing of their imports, those inside functions too, shows
no circle."""

import ast
import graphlib
import pathlib
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "kvatlas_transformers"


def imported(source: str) -> set[str]:
    """Modules of the package itself that a module imports: `from .a import b` names a, `from . import a, b` both."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {node.module} if node.module else {alias.name for alias in node.names}
    return names


class Imports(unittest.TestCase):
    def test_no_circle(self):
        graph = {path.stem: imported(path.read_text("utf-8")) for path in PACKAGE.glob("*.py")}
        self.assertIn("parts", graph["plan"])
        self.assertIn("cache", graph["policy"])  # inside a function
        list(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the circle

    def test_a_circle_is_found(self):
        graph = {"a": imported("from .b import x"), "b": imported("def f():\n    from . import c, a")}
        with self.assertRaises(graphlib.CycleError):
            graphlib.TopologicalSorter(graph).prepare()


if __name__ == "__main__":
    unittest.main()
