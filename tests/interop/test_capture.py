# SPDX-License-Identifier: Apache-2.0
"""kvatlas.capture: profiles of transformers models in memory equal those of the engine, and what has no equal is refused."""

import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import capture_support as captures
import numpy as np
import support
import torch
from kvatlas import KvatlasError, Profile, capture
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, AutoTokenizer

TINY = support.ROOT / "tests/golden/data/tiny2"
TOKENS = 150
SMALL = {
    "vocab_size": 131, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 12, "max_position_embeddings": 512, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 512, "word_embed_proj_dim": 48,
    "ffn_dim": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
# Families that the engine does not know: partial RoPE, learned positions, plain heads, shared KV heads, one head size of its own.
UNKNOWN = ("gpt_neox", "gpt2", "opt", "cohere", "persimmon")


def drawn(vocabulary: int, count: int = TOKENS, seed: int = 1) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(3, vocabulary) for _ in range(count)]


def random_model(family: str, **changes):
    torch.manual_seed(0)
    config = AutoConfig.for_model(family)
    for name, value in (SMALL | changes).items():
        if hasattr(config, name):
            setattr(config, name, value)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)
    return model


class Capture(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kvatlas-interop-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def prompts(self, *lists: list[int]) -> pathlib.Path:
        path = self.folder / "prompts.jsonl"
        path.write_text("".join(json.dumps({"tokens": tokens}) + "\n" for tokens in lists))
        return path

    def both(self, model, folder, path: pathlib.Path, tokenizer=None, **changes) -> tuple[pathlib.Path, pathlib.Path]:
        ours, theirs = self.folder / "capture.h5", self.folder / "engine.h5"
        chosen = captures.settings(**changes)
        support.run("profile", "--model", folder, "--prompts", path, "-o", theirs, "--force", "--ignore-eos", *captures.words(chosen))
        capture(model, tokenizer, path, out=ours, force=True, **chosen).close()
        return ours, theirs

    def calibrated(self, profile: pathlib.Path, method: str, *options: str) -> dict:
        return json.loads(support.run("calibrate", method, *options, "-p", profile, "--json"))[method].get("result", {})

    def test_families_give_what_the_engine_gives(self):
        for folder in sorted(path for path in TINY.iterdir() if path.is_dir()):
            with self.subTest(folder.name):
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
                path = self.prompts(drawn(model.config.get_text_config().vocab_size))
                self.assertEqual(captures.compared(*self.both(model, folder, path)), [])

    def test_short_prompts_and_generated_tokens_behind_windows_and_chunks(self):
        for family in ("gpt_oss", "llama4_text", "deepseek_v3", "gemma4_text"):
            with self.subTest(family):
                model = AutoModelForCausalLM.from_pretrained(TINY / family, dtype=torch.float32).eval()
                model.generation_config.eos_token_id = None
                vocabulary = model.config.get_text_config().vocab_size
                path = self.prompts(*(drawn(vocabulary, count, count) for count in (2, 17, 40, 33, 97)))
                self.assertEqual(captures.compared(*self.both(model, TINY / family, path, new=3, map_samples=3)), [])

    def test_the_demo_model_gives_the_same_profile_and_policies(self):
        model = AutoModelForCausalLM.from_pretrained(support.MODEL_DIR, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(support.MODEL_DIR)
        path = self.folder / "tasks.jsonl"
        lines = [support.run("tasks", "--task", "needle", "--length", 260, "--seed", seed) for seed in range(6)]
        path.write_text("".join(lines))
        ours, theirs = self.both(model, support.MODEL_DIR, path, tokenizer)
        self.assertEqual(captures.compared(ours, theirs, 2e-5), [])
        for method in (("simlayerkv", "--threshold", "0.8", "--recent", "64"), ("pod", "--initial", "4", "--recent", "64")):
            self.assertEqual(*(self.calibrated(profile, *method) for profile in (ours, theirs)))
        # A score on the border of the largest ones moves a token from one layer to another.
        budgets = [self.calibrated(profile, "dynamickv", "--budget", "96")["budgets"] for profile in (ours, theirs)]
        self.assertLessEqual(max(abs(one - other) for one, other in zip(*budgets)), 1)
        merged = self.folder / "merged.h5"
        support.run("merge", ours, theirs, "-o", merged)
        with Profile(merged) as profile:
            self.assertEqual(len(profile.samples), 12)

    def test_unknown_families_give_their_own_attention(self):
        for family in UNKNOWN:
            with self.subTest(family):
                model = random_model(family)
                tokens = drawn(131)
                with torch.no_grad():
                    attentions = model(torch.tensor([tokens]), output_attentions=True).attentions
                with capture(model, None, [tokens], out=self.folder / f"{family}.h5", **captures.settings(map_type="float32")) as profile:
                    self.compare_attention(profile, torch.stack(attentions)[:, 0].double())

    def compare_attention(self, profile: Profile, attention: torch.Tensor):
        """attention: [layer, head, row, key]."""
        rows = profile.samples[0].arrays["rows/attention"].shares()
        np.testing.assert_allclose(rows, attention[:, :, -16:].numpy(), atol=1e-5)
        np.testing.assert_allclose(profile.samples[0].arrays["columns/sums"][...], attention.sum(2).numpy(), atol=1e-4)
        np.testing.assert_allclose(profile.samples[0].arrays["map/mean/0"].shares(), attention.numpy(), atol=1e-5)
        masses = profile.statistics["lazy/proximal_mass"][0]
        for mass, (initial, recent) in zip(masses, profile.axes["proximity"].values):
            key, row = torch.arange(TOKENS), torch.arange(TOKENS - 32, TOKENS)[:, None]
            near = (key < initial) | ((key > row - recent) & (key <= row))
            np.testing.assert_allclose(mass, (attention[:, :, -32:] * near).sum(-1).numpy(), atol=1e-5)
        shares = attention[:, :, -16:]
        entropy = lambda x: -(x * torch.log2(x.clamp(min=1e-300))).sum(-1)  # noqa: E731
        middle = entropy((shares[:, None] + shares) / 2)
        expected = (middle - (entropy(shares)[:, None] + entropy(shares)) / 2).mean(-1).permute(2, 0, 1)
        np.testing.assert_allclose(profile.statistics["js/divergence"][0], expected.numpy(), atol=1e-5)

    def test_attention_functions_are_put_back(self):
        before = dict(AttentionInterface._global_mapping), AttentionInterface.get_interface
        model = support.small_llama(2, 4, 2)
        capture(model, None, [drawn(128)], out=self.folder / "p.h5", **captures.settings()).close()
        self.assertEqual((dict(AttentionInterface._global_mapping), AttentionInterface.get_interface), before)
        with self.assertRaisesRegex(KvatlasError, "none of the model's 128"):
            capture(model, None, [drawn(128), [5, 4000]], out=self.folder / "q.h5", **captures.settings())
        self.assertEqual((dict(AttentionInterface._global_mapping), AttentionInterface.get_interface), before)

    def test_what_has_no_equal_is_refused_by_name(self):
        for family, sentence in (("diffllama", "DiffLlamaAttention of layer 0 attends twice"), ("bloom", "BloomForCausalLM calls none")):
            with self.subTest(family), self.assertRaisesRegex(KvatlasError, sentence):
                capture(random_model(family), None, [drawn(131)], out=self.folder / f"{family}.h5", **captures.settings())
        model = support.small_llama(2, 4, 2)
        for words, sentence in (({"capture": "queries"}, "does not take queries"), ({"budgets": [8]}, "--budgets 8")):
            with self.subTest(sentence), self.assertRaisesRegex(KvatlasError, sentence):
                capture(model, None, [drawn(128)], out=self.folder / "refused.h5", **words)
        with self.assertRaisesRegex(KvatlasError, r"call model.eval\(\)"):
            capture(model.train(), None, [drawn(128)], out=self.folder / "refused.h5")
        model.eval()
        # Attention that goes by something else than the scores that it is handed.
        original = AttentionInterface._global_mapping["sdpa"]
        crooked = lambda module, query, key, value, mask, **more: original(module, query, key.flip(2), value, mask, **more)  # noqa: E731
        with contextlib.ExitStack() as stack:
            stack.callback(AttentionInterface._global_mapping.__setitem__, "sdpa", original)
            AttentionInterface._global_mapping["sdpa"] = crooked
            with self.assertRaisesRegex(KvatlasError, "layer 0: what it gives is not the mean of its values"):
                capture(model, None, [drawn(128)], out=self.folder / "crooked.h5", **captures.settings())

    def test_a_killed_run_goes_on_and_gives_the_same_file(self):
        script = textwrap.dedent("""
            import sys
            sys.path[:0] = sys.argv[1:3]
            import capture_support as captures, support, test_capture
            prompts = [test_capture.drawn(128, 120, seed) for seed in range(24)]
            words = {"resume": True} if sys.argv[4] == "resume" else {}
            test_capture.capture(support.small_llama(3, 4, 2), None, prompts, out=sys.argv[3], **captures.settings(), **words)
        """)

        def started(path: pathlib.Path, how: str) -> subprocess.Popen:
            here = str(pathlib.Path(__file__).resolve().parent)
            command = [sys.executable, "-c", script, here, str(support.ROOT / "export/python"), str(path), how]
            return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)

        whole, killed = self.folder / "whole.h5", self.folder / "killed.h5"
        with started(whole, "") as run:
            self.assertEqual(run.wait(), 0, run.stderr.read())
        parts = killed.with_name("killed.h5.parts")
        with started(killed, "") as run:
            while run.poll() is None and len(list(parts.glob("*.h5"))) < 4:
                time.sleep(0.01)
            run.send_signal(signal.SIGKILL)
            run.wait()
        self.assertGreaterEqual(len(list(parts.glob("*.h5"))), 4)
        self.assertFalse(killed.exists())
        with started(killed, "") as run:
            self.assertEqual(run.wait(), 1)
            self.assertIn("resume=True goes on with it", run.stderr.read())
        with started(killed, "resume") as run:
            self.assertEqual(run.wait(), 0, run.stderr.read())
        self.assertEqual(killed.read_bytes(), whole.read_bytes())
        self.assertFalse(parts.exists())
        with self.assertRaisesRegex(KvatlasError, "begun with other prompts"):
            capture(support.small_llama(3, 4, 2), None, [drawn(128)] * 24, out=killed, resume=True, **captures.settings())

    def test_generated_tasks_are_as_long_as_asked_for(self):
        model = AutoModelForCausalLM.from_pretrained(support.MODEL_DIR, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(support.MODEL_DIR)
        chosen = captures.settings(capture="next", map_samples=0)
        with capture(model, tokenizer, tasks="needle", lengths=[128], depths=[0.5], seeds=2, chat=True, out=self.folder / "t.h5", **chosen) as profile:
            self.assertEqual([sample.task for sample in profile.samples], ["needle"] * 2)
            for sample in profile.samples:
                self.assertTrue(100 <= sample.n_tokens <= 128)
                self.assertTrue(sample.answers)
            self.assertEqual(len({sample.attributes["group"] for sample in profile.samples}), 2)


if __name__ == "__main__":
    unittest.main()
