# SPDX-License-Identifier: Apache-2.0
"""The notebooks of docs/notebooks run from top to bottom, and what their cells end in shows itself."""

import ast
import json
import os
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

import capture_support  # noqa: F401 finds the package
import support

NOTEBOOKS = support.ROOT / "docs/notebooks"


def last_value(source: str, names: dict):
    """Runs a cell; what its last line is, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


class Notebooks(unittest.TestCase):
    def run_notebook(self, name: str) -> list:
        cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]
        self.assertTrue(all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code"))
        names: dict = {}
        here = os.getcwd()
        with tempfile.TemporaryDirectory(prefix="kvatlas-interop-") as folder:
            os.chdir(folder)
            try:
                return [last_value("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]
            finally:
                os.chdir(here)

    def check_shown(self, values: list) -> None:
        for value in values:
            if hasattr(value, "_repr_svg_"):
                self.assertEqual(ElementTree.fromstring(value._repr_svg_()).tag, "{http://www.w3.org/2000/svg}svg")
                self.assertGreater(len(value._repr_svg_()), 2000)
            elif hasattr(value, "_repr_html_"):
                self.assertIn("<t", value._repr_html_())

    def test_each_is_listed_here(self):
        self.assertEqual(sorted(path.stem for path in pathlib.Path(NOTEBOOKS).iterdir()), ["calibrate", "compare", "look"])

    def test_look(self):
        values = self.run_notebook("look")
        self.check_shown(values[2:5])
        self.assertIn("<svg", values[3]._repr_svg_())
        self.assertIn("needle", values[2]._repr_html_())
        self.assertEqual(values[5][0], (30, 30))

    def test_compare(self):
        values = self.run_notebook("compare")
        self.check_shown(values[1:])
        self.assertEqual(list(values[2]["policy"])[0], "full")
        self.assertEqual(len(values[2]), 5)
        self.assertIn("loss_high", values[2].columns)

    def test_calibrate(self):
        values = self.run_notebook("calibrate")
        self.check_shown(values[2:4])
        self.assertIn("simlayerkv", values[2]._repr_html_())
        self.assertEqual(len(values[4]), 30)
        self.assertIsNone(values[5])


if __name__ == "__main__":
    unittest.main()
