#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wheel_test.py BUILD LIBTORCH: the wheel of the program. It repeats, names what it holds, and runs from where it is
unpacked, with a torch beside it that is LibTorch's folder and a version. Needs h5py (python3-h5py)."""
import base64
import csv
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD, LIBTORCH = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
sys.path.insert(0, str(ROOT / "tests/support"))
import tiny_checkpoint  # noqa: E402

VERSION = re.search(r"project\(kvatlas VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
PROFILE = ROOT / "tests/unit/profile/data/v1.2.h5"


def build(folder: Path) -> Path:
    words = [sys.executable, ROOT / "export/python/build_wheel.py", folder, "--program", BUILD]
    return Path(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip())


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        cls.wheel = build(cls.folder / "first")
        cls.site = cls.folder / "site-packages"
        with zipfile.ZipFile(cls.wheel) as wheel:
            wheel.extractall(cls.site)
            for entry in wheel.infolist():  # as pip does
                (cls.site / entry.filename).chmod(entry.external_attr >> 16 & 0o777)
        cls.info = cls.site / f"kvatlas-{VERSION}.dist-info"
        cls.torch_version = re.search(r"LibTorch ([\d.]+)", cls.said(BUILD / "bin/kvatlas", "--version"))[1]
        cls.lay_torch(cls.site, cls.torch_version + "+cpu")
        # The programs have to do without what the environment of a build says.
        cls.environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(cls.site), "HOME": cls.temporary.name,
                           "PYTHONDONTWRITEBYTECODE": "1"}
        tiny_checkpoint.write(cls.folder / "M", seed=1)
        made = cls.kvatlas("profile", "--model", "M", "--task", "needle", "--lengths", "300", "--depths", "0.5", "--seeds", "5",
                           "--recent", "48,64", "--map-samples", "1", "-o", "p.h5")
        assert made.returncode == 0, made.stderr

    @staticmethod
    def lay_torch(site: Path, version: str) -> None:
        (site / "torch").mkdir(parents=True)
        (site / "torch/__init__.py").write_text("raise ImportError('only looked for')\n")
        (site / "torch/version.py").write_text(f"__all__ = ['__version__']\n__version__ = '{version}'\n")
        (site / "torch/lib").symlink_to(LIBTORCH / "lib")
        if (LIBTORCH.parent / "nvidia").exists():
            (site / "nvidia").symlink_to(LIBTORCH.parent / "nvidia")

    @staticmethod
    def said(*words, **more) -> str:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
        assert done.returncode == 0, f"{words} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    @classmethod
    def kvatlas(cls, *words, **variables) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", "kvatlas", *map(str, words)], cwd=cls.folder, capture_output=True,
                              text=True, env=cls.environment | variables)

    def python(self, code: str) -> str:
        return self.said(sys.executable, "-c", code, cwd=self.folder, env=self.environment)

    def test_repeats(self):
        self.assertEqual(self.wheel.read_bytes(), build(self.folder / "again").read_bytes())
        glibc = platform.libc_ver()[1].replace(".", "_")
        self.assertEqual(self.wheel.name, f"kvatlas-{VERSION}-py3-none-manylinux_{glibc}_{platform.machine()}.whl")

    def test_record(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
            self.assertEqual(len(names), len(set(names)))
            for name, digest, size in csv.reader(io.StringIO((self.info / "RECORD").read_text())):
                names.remove(name)
                if not name.endswith("/RECORD"):
                    expected = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest())
                    self.assertEqual((digest, int(size)), ("sha256=" + expected.rstrip(b"=").decode(), len(wheel.read(name))))
            self.assertEqual(names, [])

    def test_says_what_it_needs_and_what_starts_it(self):
        major, minor = self.torch_version.split(".")[:2]
        metadata = (self.info / "METADATA").read_text()
        for line in ("Name: kvatlas", f"Version: {VERSION}", "Requires-Dist: numpy>=1.24",
                     f'Requires-Dist: torch>={major}.{minor},<{major}.{int(minor) + 1}; extra == "torch"'):
            self.assertIn(f"\n{line}\n", metadata)
        self.assertNotIn("\nRequires-Dist: torch\n", metadata)
        self.assertEqual((self.info / "entry_points.txt").read_text(),
                         "[console_scripts]\nkvatlas = kvatlas.launcher:main\n"
                         "[vllm.general_plugins]\nkvatlas = kvatlas_vllm.plugin:register\n"
                         "[vllm.logits_processors]\nkvatlas_forced = kvatlas_vllm.forced:ForcedTokens\n")

    def test_holds_the_licences_of_what_it_holds(self):
        notice = (self.info / "licenses/NOTICE").read_text()
        self.assertIn("Qt Charts is under GPL-3.0", notice)
        packages = re.findall(r"^([\w.+-]+) \S+, (?:loaded by|headers)", notice, re.M)
        for package in ("libqt6charts6", "libqt6gui6", "fonts-dejavu-core", "libcli11-dev"):
            self.assertIn(package, packages)
        for package in packages:
            self.assertTrue((self.info / "licenses/debian" / package / "copyright").stat().st_size > 100, package)
        self.assertTrue((self.info / "licenses/common-licenses/GPL-3").exists())

    def test_libraries_lie_beside_the_programs(self):
        installed = self.site / "kvatlas/installed"
        every_linux = r"(linux-vdso|libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|libstdc\+\+|libgcc_s)\.so"
        files = [*sorted((installed / "bin").glob("kvatlas*")), *sorted((installed / "lib/qt").rglob("*.so"))]
        self.assertGreater(len(files), 5)
        for file in files:
            # A plugin is looked up through the program that opens it: as a library that is loaded ahead.
            words = ["ldd", file] if file.parent.name == "bin" else ["ldd", "-r", installed / "bin/kvatlas-viewer"]
            variables = {"LD_LIBRARY_PATH": str(self.site / "torch/lib")}
            if file.parent.name != "bin":
                variables["LD_PRELOAD"] = str(file)
            for line in self.said(*words, env=os.environ | variables).splitlines():
                self.assertNotIn("not found", line)
                self.assertNotIn("undefined symbol", line)
                name, arrow, place = line.strip().partition(" => ")
                if arrow and not re.match(every_linux, name):
                    self.assertTrue(place.startswith(str(self.site)), f"{file.name}: {line}")

    def test_program_runs(self):
        self.assertEqual(self.kvatlas("--version").stdout, self.said(BUILD / "bin/kvatlas", "--version"))
        doctor = json.loads(self.kvatlas("doctor", "--json").stdout)
        viewer = next(entry for entry in doctor if entry["part"] == "viewer")
        self.assertIn(str(self.site / "kvatlas/installed/bin/kvatlas-viewer"), viewer["found"])
        for words in ([], ["--help"]):
            self.assertIn("kvatlas demo", self.kvatlas(*words).stdout)
        self.assertEqual(self.kvatlas("inspect", "nothing-here").returncode, 3)
        self.assertIn("--model", self.kvatlas("demo", "--help").stdout)

    def test_demo_knows_its_model(self):
        built = json.loads((self.site / "kvatlas/built.json").read_text())
        self.assertEqual(built["torch"], ".".join(self.torch_version.split(".")[:2]))
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        model = cache / "kvatlas" / built["model"]["file"]  # which './dev setup' fetched
        self.assertEqual(built["model"]["sha256"], hashlib.sha256(model.read_bytes()).hexdigest())
        code = "from kvatlas import demo, program; print(demo.fetched_model(program.built()['model']))"
        self.assertEqual(self.said(sys.executable, "-c", code, env=self.environment | {"XDG_CACHE_HOME": str(cache)}).strip(),
                         str(model))

    def test_demo_goes_from_the_card_to_the_report(self):
        """On the tiny model, whose policies mean nothing; tests/interop/test_wheel.py runs the demo's own."""
        done = self.kvatlas("demo", "--model", "M", "-o", "shown", "--force")
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = self.folder / "shown"
        for name in ("model.txt", "profile.txt", "calibration.txt", "evaluation.txt", "report.html"):
            self.assertGreater((shown / name).stat().st_size, 100, name)
        self.assertIn((shown / "evaluation.txt").read_text(), done.stdout)
        self.assertTrue(any((shown / "export/transformers-cache").rglob("policy.json")))
        self.assertIn("demo: 8 of 8", done.stderr)

    def test_demo_ends_with_the_step_that_fails(self):
        done = self.kvatlas("demo", "--model", "absent.gguf", "-o", "failed")
        self.assertEqual(done.returncode, 1)
        self.assertIn("absent.gguf", done.stderr)
        self.assertRegex(done.stderr, r"kvatlas: 'kvatlas inspect' ended with \d\n$")

    def test_viewer_draws_without_display_and_torch(self):
        alone = self.folder / "no-torch"
        alone.mkdir()
        (alone / "kvatlas").symlink_to(self.site / "kvatlas")
        chart = self.folder / "chart.svg"
        words = ("render", "p.h5", "--what", "lazy", "--recent", "64", "-o", chart)
        done = self.kvatlas(*words, PYTHONPATH=str(alone))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("<svg", chart.read_text())

    def test_torch_is_missing_or_another(self):
        other = self.folder / "other"
        self.lay_torch(other, "2.1.0")
        (other / "kvatlas").symlink_to(self.site / "kvatlas")
        alone = self.folder / "alone"
        alone.mkdir()
        (alone / "kvatlas").symlink_to(self.site / "kvatlas")
        wanted = ".".join(self.torch_version.split(".")[:2])
        for folder, words in ((other, f"{other}/torch is 2.1.0"), (alone, "which is not installed here")):
            self.assertEqual(self.kvatlas("inspect", PROFILE, PYTHONPATH=f"{folder}").returncode, 0)
            done = self.kvatlas("profile", "--help", PYTHONPATH=f"{folder}")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, f"^kvatlas: the program runs on torch {re.escape(wanted)}, .*\n$")
            self.assertIn(words, done.stderr)
            self.assertIn(f"pip install 'torch>={wanted},<", done.stderr)

    def test_profiles_are_arrays(self):
        self.python(f"""if True:
            import h5py, numpy, kvatlas
            with kvatlas.Profile({str(PROFILE)!r}) as profile, h5py.File({str(PROFILE)!r}) as file:
                model = profile.model
                assert (model.name, model.layers, model.heads, model.kv_heads, model.head_dim) == ("tiny", 3, 4, 2, 8)
                assert model.windows.tolist() == [0, 128, 0] and not profile.complete
                assert list(profile.statistics) == ["counts/top", "counts/wide", "flags", "js/divergence", "mass", "sometimes"]
                mass = profile.statistics["mass"]
                assert mass.axes == ("sample", "proximity", "layer") and mass.shape == (3, 2, 3)
                assert mass.meaning == "Mass on near keys."
                assert numpy.array_equal(numpy.asarray(mass), file["statistics/mass"][...], equal_nan=True)
                assert profile.sample_index.tolist() == [3, 4, 5]
                assert profile.axes["proximity"].columns == ("initial", "recent")
                assert profile.axes["proximity"].values.tolist() == [[4, 64], [16, 240]]
                sample = profile.samples[1]
                assert (sample.index, sample.id, sample.task, sample.depth) == (4, "needle-4-é", "needle", 0.25)
                assert sample.answers == ("one", "", "the second answer") and len(sample.tokens) == 304
            """)

    def test_hostile_profiles_are_refused(self):
        self.python("""if True:
            import h5py, kvatlas, numpy
            def refused(what, words):
                try:
                    what()
                except kvatlas.KvatlasError as error:
                    assert words in str(error), error
                else:
                    raise AssertionError(words)
            open("empty.h5", "w").close()
            refused(lambda: kvatlas.Profile("empty.h5"), "empty.h5 is no profile")
            refused(lambda: kvatlas.Profile("absent.h5"), "absent.h5 is no profile")
            h5py.File("other.h5", "w").close()
            refused(lambda: kvatlas.Profile("other.h5"), "other.h5: no profile")
            import shutil
            def changed(change):
                shutil.copyfile(%r, "changed.h5")
                with h5py.File("changed.h5", "r+") as file:
                    change(file)
                return kvatlas.Profile("changed.h5")
            def link(file):
                del file["statistics"]
                file["statistics"] = h5py.ExternalLink("other.h5", "/")
            refused(lambda: changed(link).statistics, "link to elsewhere")
            def claim(file):
                file["statistics/huge"] = h5py.Empty("f4")
                del file["statistics/huge"]
                made = file.create_dataset("statistics/huge", (1 << 40,), "f4", chunks=(1 << 20,), compression="gzip")
                for key in ("axes", "unit", "meaning"):
                    made.attrs[key] = file["statistics/mass"].attrs[key]
            refused(lambda: changed(claim).statistics["huge"], "claims")
            def without(file):
                del file.attrs["capture"]
            refused(lambda: changed(without), "'capture' of its root is missing")
            def newer(file):
                file.attrs["schema_major"] = 2
            refused(lambda: changed(newer), "schema 2")
            """ % str(PROFILE))

    def test_rules_and_policies(self):
        said = self.kvatlas("calibrate", "simlayerkv", "-p", "p.h5", "--threshold", "0.4", "--recent", "64", "--json")
        self.assertEqual(said.returncode, 0, said.stderr)
        document = json.loads(said.stdout)
        self.python(f"""if True:
            import json, kvatlas, numpy
            document = json.loads({json.dumps(document)!r})
            with kvatlas.Profile("p.h5") as profile:
                policy = kvatlas.simlayerkv(profile, threshold=0.4, recent=64)
                level = profile.samples[0].arrays["map/mean/0"]
                shares, codes = level.shares(), level[...]
                assert codes.dtype == numpy.uint8 and shares.shape == codes.shape
                known = (codes > 0) & (codes < 255)
                assert known.any() and numpy.allclose(shares[known], 2.0 ** (codes[known] / 8 - 31.75))
                assert (shares[codes == 0] == 0).all() and numpy.isnan(shares[codes == 255]).all()
                assert b"".join(profile.samples[0].texts).decode()
            assert policy.document == document
            lazy = policy.sections["simlayerkv"].settings, policy.sections["simlayerkv"].found
            assert lazy[0]["threshold"] == 0.4 and "lazy_rates" in lazy[1]
            fixed = kvatlas.simlayerkv("p.h5", threshold=0.4, recent=64, fixed=True)
            layers = fixed.sections["simlayerkv"].result["lazy_layers"]
            assert layers.dtype == bool and layers.shape == ({tiny_checkpoint.LAYERS},), layers
            pod = kvatlas.pod("p.h5", delta=0.5, recent=64)
            assert pod.sections["pod"].result["lowest"].shape == ({tiny_checkpoint.HEADS}, {tiny_checkpoint.LAYERS})
            budgets = kvatlas.dynamickv("p.h5", budget=128).sections["dynamickv"].result["budgets"]
            assert budgets.sum() == {tiny_checkpoint.LAYERS} * (128 - 16), budgets
            fixed.save("policy.json")
            again = kvatlas.Policy.load("policy.json")
            assert again.document == fixed.document and again.model.layers == {tiny_checkpoint.LAYERS}
            again.document["model"]["layers"] = 3
            for wrong in (lambda: kvatlas.Policy.of(again.document), lambda: kvatlas.run("inspect", "absent.json"),
                          lambda: kvatlas.simlayerkv("p.h5", nonsense=1)):
                try:
                    wrong()
                except kvatlas.KvatlasError as error:
                    assert str(error).startswith("kvatlas: "), error
                else:
                    raise AssertionError
            """)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
