# SPDX-License-Identifier: Apache-2.0
"""`kvatlas check --endpoint` judges vLLM with a policy of ours beside plain vLLM, and plain vLLM beside itself."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import support
import vllm_support

vllm_support.install_plugin()

LAYERS = 30
FULL, LAZY = 8741, 8742  # ports
PROMPTS = ("--task", "needle", "--lengths", 160, "--depths", 0.5, "--new", 12)


def lazy_policy() -> dict:
    return {
        "schema": "kvatlas.policy/1.0",
        "model": {"architecture": "llama", "layers": LAYERS, "heads": 9, "kv_heads": 3, "head_dim": 64},
        "simlayerkv": {"settings": {"initial": 4, "recent": 60}, "result": {"lazy_layers": [n % 3 != 0 for n in range(LAYERS)]}},
    }


def serve(port: int, log, *options) -> subprocess.Popen:
    code = "import sys; from vllm.entrypoints.cli.main import main; sys.argv[0] = 'vllm'; sys.exit(main())"
    words = [sys.executable, "-c", code, "serve", support.MODEL_DIR, "--port", port, "--served-model-name", "smol", "--dtype",
             "float32", "--max-model-len", 2048, "--enforce-eager", "--enable-prompt-tokens-details", *options]
    environment = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(list(map(str, words)), stdout=log, stderr=subprocess.STDOUT, env=environment)


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.log = tempfile.TemporaryFile("w+")
        cls.addClassCleanup(cls.log.close)
        policy = vllm_support.exported(lazy_policy())
        for port, options in ((FULL, ()), (LAZY, ("--config", policy))):
            server = serve(port, cls.log, *options)
            cls.addClassCleanup(server.wait, 120)
            cls.addClassCleanup(server.terminate)
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                    break
                except OSError:
                    if server.poll() is not None:
                        cls.log.seek(0)
                        raise AssertionError(cls.log.read()) from None
                    time.sleep(1)

    def check(self, port: int, *options) -> dict:
        done = support.kvatlas("check", "--endpoint", f"http://127.0.0.1:{port}", "--full", f"http://127.0.0.1:{FULL}",
                               "--tokenizer", support.MODEL_DIR, *PROMPTS, "--force", "--concurrency", 2, "--json", *options)
        self.assertIn(done.returncode, (0, 4), done.stderr)
        return json.loads(done.stdout)

    def test_plain_beside_plain(self):
        said = self.check(FULL, "--max-loss", 40, "--most-samples", 15, "--control", 5)
        self.assertEqual(said["verdict"], "passed")
        served = said["served"]
        self.assertEqual(said["servers"][0]["loss"]["mean"], 0)
        self.assertEqual(served["control"]["loss_points"]["mean"], 0)
        self.assertEqual(served["same_answers"], served["pairs"])
        self.assertLess(served["total_variation"]["mean_at_least"], 1e-3)
        self.assertEqual(served["compression"]["verdict"], "not seen")
        self.assertEqual(served["cached_tokens"], 0)

    def test_a_policy_beside_plain(self):
        """Twenty of thirty layers keep 64 tokens of a prompt of some 150: it shows in answers and in held blocks."""
        said = self.check(LAZY, "--max-loss", 5, "--most-samples", 10, "--control", 5)
        self.assertEqual(said["verdict"], "failed")
        served = said["served"]
        self.assertGreater(said["servers"][0]["loss"]["mean"], 0.2)
        self.assertLess(served["agreement"]["mean_at_least"], 1)
        self.assertGreater(served["total_variation"]["mean_at_most"], 0)
        self.assertEqual(served["compression"]["verdict"], "seen")
        signs = {sign["name"]: sign["verdict"] for sign in served["compression"]["signs"]}
        self.assertEqual(signs["use"], "seen")

    def test_forced_tokens(self):
        """Of the same server every token agrees; of the cut cache not all do, and less is lost than where answers part."""
        plain = self.check(FULL, "--max-loss", 40, "--most-samples", 5, "--control", 0, "--force-decode")["served"]
        self.assertEqual(plain["agreement"]["by"], "forced decoding")
        self.assertEqual(plain["agreement"]["mean_at_least"], 1)
        lazy = self.check(LAZY, "--max-loss", 40, "--most-samples", 5, "--control", 0, "--force-decode")["served"]
        self.assertLess(lazy["agreement"]["mean_at_least"], 1)
        self.assertEqual(lazy["agreement"]["mean_at_least"], lazy["agreement"]["mean_at_most"])
        self.assertGreater(lazy["total_variation"]["mean_at_least"], plain["total_variation"]["mean_at_least"])


if __name__ == "__main__":
    unittest.main()
