#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""demo_test.py: what `kvatlas demo` shows, without a model (wheel_test.py runs it on a tiny one)."""
import fcntl
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "export/python/program/kvatlas"))
import demo  # noqa: E402


def judged(policy: str, kept: float, loss: float) -> dict:
    return {"policy": policy, "kept_share": kept, "score": {"mean": 1 - loss, "low": 0, "high": 1},
            "loss": {"mean": loss, "low": max(-1, loss - 0.07), "high": min(1, loss + 0.07)}}


EVALUATION = {"texts": 52, "policies": [
    judged("full", 1, 0), judged("streaming:recent=80", 0.25, 0.9012), judged("simlayerkv:threshold=0.87292,recent=80", 0.8, 0),
    judged("precision (by layer)", 0.29, -0.0001), judged("dynamickv:budget=128 (one for all)", 0.4, 0.0196)]}


class Demo(unittest.TestCase):
    def test_commands_are_as_a_user_types_them(self):
        folder = Path("demo")
        for step in demo.steps("M.gguf", folder):
            self.assertNotIn("--force", step.words)
        words = {step.words[0]: step.words for step in demo.steps("M.gguf", folder, force=True)}
        self.assertIn("--force", words["calibrate"])
        # At least fifty texts, none of which the profile has.
        value = lambda name, option: int(words[name][words[name].index(option) + 1])  # noqa: E731
        tasks = words["evaluate"].count("--task")
        self.assertGreaterEqual(tasks * value("evaluate", "--seeds"), 50)
        self.assertGreaterEqual(value("evaluate", "--seed"), value("profile", "--seeds"))
        self.assertEqual(value("evaluate", "--lengths"), value("profile", "--lengths"))

    def test_table_has_the_best_first(self):
        lines = demo.final_table(EVALUATION).splitlines()
        self.assertEqual([line.split()[0] for line in lines[2:]],
                         ["precision", "simlayerkv:threshold=0.87292,recent=80", "dynamickv:budget=128", "streaming:recent=80"])
        self.assertIn("52 texts", lines[0])
        self.assertIn("0.0 [-7.0, 7.0]", lines[2])
        self.assertLessEqual(max(map(len, lines)), 100)

    def test_summary_says_what_was_found_and_what_to_do(self):
        said = demo.summary(EVALUATION, ["precision", "simlayerkv", "dynamickv"], "kvatlas", Path("kvatlas-demo"))
        lines = said.splitlines()
        self.assertLessEqual(len(lines), 10)
        self.assertLessEqual(max(map(len, lines)), 100)
        for words in ("2 of 4 policies lose nothing", "precision (by layer) (71.0 % saved)", "loses most: streaming:recent=80",
                      "PoD, HeadKV, LagKV", "--chat auto"):
            self.assertIn(words, said)
        losing = {"texts": 52, "policies": EVALUATION["policies"][:2]}
        self.assertIn("every policy loses", demo.summary(losing, [], "kvatlas", Path("d")))

    def test_dev_refuses_what_it_would_ignore(self):
        dev = Path(__file__).resolve().parents[3] / "dev"
        for words, reason in ((["demo", "--foo"], "demo takes no arguments, not '--foo'"), (["wheel", "x"], "wheel takes no arguments"),
                              (["setup", "x"], "setup takes no arguments"), (["clean", "--deps", "x"], "clean takes one argument"),
                              (["fuzz", "-1"], "a number of seconds, not '-1'")):
            done = subprocess.run([str(dev), *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(reason, done.stderr)

    def test_replaces_its_own_files_alone(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "demo"
            os.close(demo.empty_folder(folder))
            (folder / "policy.json").write_text("mine")
            os.close(demo.empty_folder(folder))  # no demo was here
            self.assertTrue((folder / "policy.json").exists())
            (folder / "export").mkdir()
            for file in ("model.txt", "export/x", "notes.md"):
                (folder / file).write_text("")
            lock = demo.empty_folder(folder)
            self.assertEqual(sorted(path.name for path in folder.iterdir()), ["model.txt", "notes.md"])
            with self.assertRaisesRegex(demo.DemoError, "another demo"):
                demo.empty_folder(folder)
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


if __name__ == "__main__":
    unittest.main()
