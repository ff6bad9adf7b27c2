# SPDX-License-Identifier: Apache-2.0
"""The exported statistics of queries and heads are what kvpress computes, and their readers take the files."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
import support
import torch
from kvpress import DuoAttentionPress, ExpectedAttentionStatsPress
from kvpress.presses import duo_attention_press
from kvpress.presses.expected_attention_with_stats import ExpectedAttentionStats, patch_rotary_embedding
from transformers import AutoModelForCausalLM, AutoTokenizer

SKIP = 4  # kvpress' n_sink


class InputIds(dict):
    """What a tokenizer gives, as far as kvpress uses it."""

    def __init__(self, ids):
        super().__init__(input_ids=ids)

    def to(self, _device):
        return self


class QueryStatistics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        text = (support.ROOT / "LICENSE").read_text("utf-8")
        ids = AutoTokenizer.from_pretrained(support.MODEL_DIR)(text).input_ids
        cls.prompts = [ids[:300], ids[400:900], ids[:3]]  # the last one is shorter than what is left out
        file = cls.folder / "prompts.jsonl"
        file.write_text("".join(json.dumps({"tokens": one}) + "\n" for one in cls.prompts), encoding="utf-8")
        profile = cls.folder / "p.h5"
        options = ("--capture", "queries,covariance,heads", "-o", profile)
        support.run("profile", "--model", support.MODEL_DIR, "--prompts", file, *options)
        readers = "triattention,expected-attention,duo-attention"
        support.run("export", profile, "--to", readers, "-o", cls.folder / "out")
        cls.model = AutoModelForCausalLM.from_pretrained(support.MODEL_DIR, dtype=torch.float32).eval()
        collected = []
        for prompt in cls.prompts[:2]:
            with torch.inference_mode(), patch_rotary_embedding(cls.model) as captured:
                cls.model(torch.tensor([prompt]))
            collected.append(torch.cat(captured, dim=0)[:, :, SKIP:, :])
        cls.queries = torch.cat(collected, dim=-2).double()  # [layer, head, query, channel]

    def check(self, ours: torch.Tensor, expected: torch.Tensor):
        self.assertEqual(ours.shape, expected.shape)
        self.assertLess(((ours.double() - expected).abs().max() / expected.abs().max()).item(), 1e-4)

    def test_expected_attention(self):
        folder = self.folder / "out/expected-attention"
        stats = ExpectedAttentionStats.from_pretrained(str(folder))
        self.assertEqual((stats.num_samples, stats.n_sink), (3, SKIP))
        mean = self.queries.mean(dim=-2)
        centred = self.queries - mean.unsqueeze(-2)
        self.check(stats.query_mean.data, mean)
        self.check(stats.query_cov.data, centred.transpose(-2, -1) @ centred / (self.queries.shape[-2] - 1))
        press = ExpectedAttentionStatsPress(compression_ratio=0.5, stats_folder=str(folder))
        prompt = torch.tensor([self.prompts[1]])
        cache = None
        with torch.inference_mode(), press(self.model):
            cache = self.model(prompt, use_cache=True).past_key_values
        self.assertEqual(cache.layers[0].keys.shape[2], prompt.shape[1] // 2)

    def test_triattention(self):
        folder, target = self.folder / "out/triattention", self.folder / "stats.pt"
        config = Path(support.MODEL_DIR) / "config.json"
        words = [folder / "write_triattention_stats.py", folder / "query_statistics.safetensors", config, target]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        written = torch.load(target)
        self.assertEqual(written["metadata"]["rope_type"], "default")
        self.assertEqual(len(written["metadata"]["sampled_heads"]), 30 * 9)
        half = self.queries.shape[-1] // 2
        pairs = torch.complex(self.queries[..., :half], self.queries[..., half:])
        for layer, head in ((0, 0), (13, 4), (29, 8)):
            stats, expected = written["stats"][f"layer{layer:02d}_head{head:02d}"], pairs[layer, head]
            self.check(stats["q_mean_real"], expected.mean(0).real)
            self.check(stats["q_mean_imag"], expected.mean(0).imag)
            self.check(stats["q_abs_mean"], expected.abs().mean(0))

    def test_duo_attention(self):
        """kvpress' scores of heads, on the same prompts instead of its own texts."""
        folder = self.folder / "out/duo-attention"
        ours = np.loadtxt(folder / "full_attention_heads.tsv", dtype=float, delimiter="\t")
        texts, prompts = mock.MagicMock(), iter(self.prompts)
        texts.to_pandas().sample().__getitem__().tolist.return_value = ["a", "b", "c"]
        tokenizer = mock.MagicMock(side_effect=lambda *_, **__: InputIds(torch.tensor([next(prompts)])))
        with (
            mock.patch.object(duo_attention_press, "load_dataset", return_value=texts),
            mock.patch.object(duo_attention_press.AutoTokenizer, "from_pretrained", return_value=tokenizer),
        ):
            theirs = duo_attention_press.duo_attention_on_the_fly(self.model, num_samples=3)
            press = DuoAttentionPress(head_compression_ratio=0.5, on_the_fly_scoring=True)
            with mock.patch.object(duo_attention_press, "duo_attention_on_the_fly", return_value=theirs):
                press.post_init_from_model(self.model)
        self.assertEqual(ours.shape, theirs.shape)
        self.assertLess(np.abs(ours - theirs).max(), 1e-4)
        sizes = json.loads((folder / "config.json").read_text("utf-8"))
        self.assertEqual(sizes, {"sink_size": press.sink_size, "recent_size": press.recent_size})

        # The pattern that kvatlas makes of the numbers is that of kvpress.
        policy = self.folder / "heads.json"
        config = Path(support.MODEL_DIR) / "config.json"
        support.run("import", "duo-attention", folder, "--sparsity", 0.5, "--config", config, "-o", policy)
        lazy = json.loads(policy.read_text("utf-8"))["heads"]["result"]["lazy_heads"]
        self.assertEqual(lazy, press.streaming_mask.tolist())

    def test_what_is_missing_is_said(self):
        bare = self.folder / "bare.h5"
        words = ("--model", support.MODEL_DIR, "--prompts", self.folder / "prompts.jsonl", "--capture", "queries")
        support.run("profile", *words, "-o", bare)
        done = support.kvatlas("export", bare, "--to", "expected-attention", "-o", self.folder / "no")
        self.assertIn("queries,covariance", done.stderr)
        done = support.kvatlas("export", bare, "--to", "duo-attention", "-o", self.folder / "no")
        self.assertIn("--capture heads", done.stderr)
        done = support.kvatlas("export", bare, "--to", "vllm", "-o", self.folder / "no")
        self.assertIn("is a profile", done.stderr)
        self.assertFalse((self.folder / "no").exists())


if __name__ == "__main__":
    unittest.main()
