# SPDX-License-Identifier: Apache-2.0
"""The wheel of the program, installed by pip into a fresh virtual environment: the demo from its first to its last step,
and policies that go from Python into transformers. Torch and transformers are those of the environment of these tests."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support

CODE = """
import importlib.metadata, json, sys
import kvatlas, kvatlas_vllm, torch
from transformers import AutoModelForCausalLM

assert kvatlas.__file__.startswith(sys.prefix) and kvatlas_vllm.__file__.startswith(sys.prefix)
(point,) = [p for p in importlib.metadata.entry_points(group="vllm.general_plugins") if p.name == "kvatlas"]
assert point.value == "kvatlas_vllm.plugin:register"
with kvatlas.Profile("kvatlas-demo/smollm2.h5") as profile:
    layers = profile.model.layers
    assert profile.complete and profile.statistics["js/divergence"].shape[-2:] == (layers, layers)
policy = kvatlas.simlayerkv("kvatlas-demo/smollm2.h5", threshold=0.7, recent=80, fixed=True)
lazy = policy.sections["simlayerkv"].result["lazy_layers"]
assert 0 < lazy.sum() < layers
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
cache = policy.cache(model)
ids = torch.randint(1, 1000, (1, 400), generator=torch.Generator().manual_seed(1))
model.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=cache, max_new_tokens=2, min_new_tokens=2, do_sample=False)
print(json.dumps([lazy.tolist(), cache.lengths()]))
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        build = Path(support.KVATLAS).parents[1]
        wheel = cls.said(sys.executable, support.ROOT / "export/python/build_wheel.py", cls.folder, "--program", build).strip()
        cls.said(sys.executable, "-m", "venv", "--without-pip", cls.folder / "venv")
        cls.python = cls.folder / "venv/bin/python"
        pip = [os.path.realpath(sys.executable), "-m", "pip", "--python", cls.python, "--disable-pip-version-check"]
        cls.said(*pip, "install", "-q", "--no-deps", "--no-index", wheel)
        (site,) = (cls.folder / "venv/lib").glob("python*/site-packages")
        others = [path for path in sys.path if path.endswith("site-packages")]
        (site / "others.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in others))

    @classmethod
    def said(cls, *words) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([str(word) for word in words], cwd=cls.folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stderr}")
        return done.stdout

    def test_demo_and_python(self):
        kvatlas = self.folder / "venv/bin/kvatlas"
        self.assertIn("LibTorch", self.said(kvatlas, "--version"))
        with open("/dev/full", "w") as full:
            # Where Python does not buffer what it writes, argparse itself passes over the failure.
            buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
            help_ = subprocess.run([kvatlas, "demo", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, env=buffered)
        self.assertEqual((help_.returncode, help_.stderr.strip()), (1, "kvatlas: writing to stdout failed: No space left on device"))
        shown = self.said(kvatlas, "demo", "--model", support.MODEL)
        self.assertIn("52 texts that calibration has not seen", shown)
        self.assertIn("What to do next", shown)
        demo = self.folder / "kvatlas-demo"
        for name in ("model.txt", "generated.txt", "profile.txt", "calibration.txt", "evaluation.txt", "report.html"):
            self.assertGreater((demo / name).stat().st_size, 100, name)
        self.assertIn("precision", json.loads((demo / "policy.json").read_text()))
        self.assertGreater(len(list((demo / "export").iterdir())), 10)
        lazy, lengths = json.loads(self.said(self.python, "-c", CODE, support.MODEL_DIR))
        for flag, length in zip(lazy, lengths):
            self.assertEqual(length, 80 + 4 + 1 if flag else 401)


if __name__ == "__main__":
    unittest.main()
