# SPDX-License-Identifier: Apache-2.0
"""kvpress runs exported presses on a small random model and keeps the positions that the policies name."""
import json
import os
import tempfile
import unittest
import warnings
from pathlib import Path

import kvatlas_transformers
import torch
from kvpress import CriticalKVPress, ExpectedAttentionPress, KeyDiffPress, SnapKVPress
from kvpress_support import evaluated, load_press, prefilled, rows_of, unmasked
from support import export, selection_document, small_llama

DOCUMENTS = Path(__file__).resolve().parent.parent / "unit" / "export" / "documents"
LENGTH = 600


def load(folder: Path):
    """The press, and its file as JSON."""
    (file,) = folder.glob("kvatlas_press*.json")
    return load_press(folder), json.loads(file.read_text(encoding="utf-8"))


class KvpressTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = small_llama(6, 4, 2)
        cls.ids = torch.randint(0, 128, (1, LENGTH), generator=torch.Generator().manual_seed(1))
        cls.full = prefilled(cls.model, cls.ids)

    def run_press(self, document: str, *options):
        """The press's file, and [layer][KV head] the positions that it keeps."""
        folder = export(DOCUMENTS / document, "kvpress", *options)
        press, numbers = load(folder)
        cache = prefilled(self.model, self.ids, press)
        kept = [rows_of(cut, whole) for cut, whole in zip(cache.layers, self.full.layers)]
        return press, numbers, kept

    def test_lazy_layers_keep_the_first_and_the_last(self):
        _, numbers, kept = self.run_press("lazy_layers.json", "--length", LENGTH)
        lazy = [False, True, True, False, True, True]
        ends = list(range(4)) + list(range(LENGTH - 256, LENGTH))
        for layer, heads in enumerate(kept):
            self.assertEqual(heads, [ends if lazy[layer] else list(range(LENGTH))] * 2)
        self.assertEqual(numbers["kept"], [260 if flag else LENGTH for flag in lazy])

    def test_streaming_as_in_the_registry(self):
        folder = export(DOCUMENTS / "streaming.json", "kvpress", "--length", LENGTH)
        config = dict(line.split(": ") for line in (folder / "evaluate_config.yaml").read_text().splitlines())
        self.assertEqual(config["press_name"], "streaming_llm")
        from kvpress import StreamingLLMPress

        cache = prefilled(self.model, self.ids, StreamingLLMPress(float(config["compression_ratio"])))
        ends = list(range(4)) + list(range(LENGTH - 256, LENGTH))
        self.assertEqual(rows_of(cache.layers[0], self.full.layers[0]), [ends] * 2)

    def test_budgets_keep_the_best_of_each_layer(self):
        _, numbers, kept = self.run_press("budgets.json", "--length", LENGTH)
        self.assertEqual(numbers["kept"], [256, 116, 96, 76, 156, 68])
        model = small_llama(6, 4, 2)
        model.set_attn_implementation("eager")
        with torch.no_grad():
            maps = model(self.ids, output_attentions=True).attentions
        for layer, heads in enumerate(kept):
            rows = maps[layer][0, :, -16:, : LENGTH - 16].mean(1)
            scores = torch.nn.functional.avg_pool1d(rows, 7, 1, 3).view(2, 2, -1).mean(1)
            window = list(range(LENGTH - 16, LENGTH))
            for head in range(2):
                order = scores[head].argsort(descending=True)
                chosen = order[: numbers["kept"][layer] - 16].tolist()
                self.assertEqual(heads[head], sorted(chosen) + window)

    def test_lag_cuts_the_prompt(self):
        for document, sink, keep in (("lag.json", 16, 21), ("lag_registered.json", 4, 37)):
            _, numbers, kept = self.run_press(document, "--length", LENGTH)
            parts = (LENGTH - sink) // 128
            tail = list(range(sink + (parts - 1) * 128, LENGTH))
            self.assertEqual(numbers["kept"], sink + keep * (parts - 1) + len(tail))
            for layer, heads in enumerate(kept):
                for head in range(2):
                    chosen = list(range(sink))
                    for part in range(parts - 1):
                        begin = sink + part * 128
                        scores = torch.zeros(128)
                        for states in (self.full.layers[layer].keys, self.full.layers[layer].values):
                            own = states[0, head, begin : begin + 128]
                            after = states[0, head, begin + 128 : begin + 256]
                            low, high = after.min(0).values, after.max(0).values
                            scores += ((own - low) / (high - low)).std(-1).softmax(-1)
                        chosen += sorted(begin + i for i in scores.argsort(descending=True)[:keep].tolist())
                    self.assertEqual(heads[head], chosen + tail)

    def test_heads_are_masked(self):
        press, numbers, kept = self.run_press("heads.json")
        lazy = [[0, 0], [1, 0], [1, 1], [0, 1], [1, 1], [0, 0]]
        self.assertEqual(press.streaming_mask.int().tolist(), lazy)
        self.assertTrue(all(heads == [list(range(LENGTH))] * 2 for heads in kept))
        for layer, heads in zip(self.model.model.layers, lazy):
            _, masked_heads, masked = layer.self_attn.masked_key_indices
            for head in range(2):
                expected = list(range(4, LENGTH - 60)) if heads[head] else []
                self.assertEqual(masked[masked_heads == head].tolist(), expected)

    def test_threshold_decides_by_input(self):
        press, numbers, kept = self.run_press("by_input.json")
        arguments = numbers["arguments"]
        self.assertEqual((arguments["lazy_threshold"], arguments["n_recent"]), (0.7, 256))
        masses = []
        model = small_llama(6, 4, 2)
        model.set_attn_implementation("eager")
        with torch.no_grad():
            maps = model(self.ids, output_attentions=True).attentions
        for layer, heads in enumerate(kept):
            row = maps[layer][0, :, -1, :-1].mean(0)
            masses.append(float(row[:4].sum() + row[-256:].sum()))
            ends = list(range(4)) + list(range(LENGTH - 255, LENGTH))
            self.assertEqual(heads, [ends if masses[-1] > 0.7 else list(range(LENGTH))] * 2)
        self.assertGreater(min(abs(mass - 0.7) for mass in masses), 1e-4)

    def test_other_models_and_lengths_are_noticed(self):
        press, _ = load(export(DOCUMENTS / "lazy_layers.json", "kvpress", "--length", LENGTH))
        with self.assertRaisesRegex(ValueError, "for 6 layers, the model has 2"):
            prefilled(small_llama(2, 4, 2), self.ids, press)
        with self.assertWarnsRegex(UserWarning, "500 tokens, the ratios of the press are for 600"):
            prefilled(self.model, self.ids[:, :500], press)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            prefilled(self.model, self.ids, press)

    def test_every_length_keeps_what_it_promises(self):
        for length in (261, 262, 300, 511, 1000):
            _, numbers = load(export(DOCUMENTS / "budgets.json", "kvpress", "--length", length))
            for ratio, kept in zip(numbers["arguments"]["compression_ratios"], numbers["kept"]):
                self.assertEqual(int(length * (1 - ratio)), kept)

    def test_generate_continues_as_the_masked_model(self):
        """generate() within the press: the cut cache gives what a full cache gives whose cut keys are masked."""
        press, numbers = load(export(DOCUMENTS / "lazy_layers.json", "kvpress", "--length", LENGTH))
        with torch.no_grad(), press(self.model):
            ones = torch.ones_like(self.ids)
            out = self.model.generate(self.ids, attention_mask=ones, max_new_tokens=8, do_sample=False, pad_token_id=0)
        ids = out[0, LENGTH:].tolist()
        cache = prefilled(self.model, self.ids)
        for layer, kept in zip(cache.layers, numbers["kept"]):
            if kept < LENGTH:
                layer.keys = torch.cat([layer.keys[:, :, :4], layer.keys[:, :, -256:]], 2)
                layer.values = torch.cat([layer.values[:, :, :4], layer.values[:, :, -256:]], 2)
        with torch.no_grad():
            token = self.model(self.ids).logits[0, -1].argmax().view(1, 1)
            expected = [int(token)]
            for step in range(7):
                position = torch.tensor([[LENGTH + step]])
                logits = self.model(
                    token, past_key_values=cache, position_ids=position, cache_position=position[0]
                ).logits
                token = logits[0, -1].argmax().view(1, 1)
                expected.append(int(token))
        self.assertEqual(ids, expected)


def small_qwen3(layers: int, heads: int, kv_heads: int):
    """A random model that norms its queries, of heads whose size is not the width over their number."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(1)
    shape = small_llama(layers, heads, kv_heads).config.to_dict()
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    names += ("num_key_value_heads", "max_position_embeddings", "initializer_range")
    return Qwen3ForCausalLM(Qwen3Config(**{name: shape[name] for name in names}, head_dim=24)).eval()


class SelectionsTest(unittest.TestCase):
    """kvpress and the program select the same tokens on random models."""

    SETTINGS = {
        "adakv": [{"budget": 40}, {"budget": 90, "window": 30, "kernel": 1, "safeguard": 0}, {"budget": 64, "safeguard": 1}],
        "chunkkv": [{"budget": 100}, {"budget": 60, "window": 3, "kernel": 9, "chunk": 7}],
        "criticalkv": [{"budget": 40}, {"budget": 90, "window": 30, "kernel": 1, "share": 0, "epsilon": 0.5}],
        "tova": [{"budget": 2}, {"budget": 50}],
        "keydiff": [{"budget": 2}, {"budget": 50}],
        "expected-attention": [
            {"budget": 50},
            {"budget": 60, "sink": 0, "future": 1, "epsilon": 0.1},
            {"budget": 60, "covariance": False},
            {"budget": 60, "values": False},
        ],
    }

    def check(self, model, lengths=(97, 300)):
        with tempfile.TemporaryDirectory(prefix="kvatlas-interop-") as folder:
            model.save_pretrained(folder)
            for length in lengths:
                ids = torch.randint(0, 128, (1, length), generator=torch.Generator().manual_seed(length))
                full = prefilled(model, ids)
                tried = [(name, settings) for name, all_of_them in self.SETTINGS.items() for settings in all_of_them]
                documents = [selection_document(model, name, settings) for name, settings in tried]
                told = evaluated(Path(folder), documents, ids)
                for (name, settings), document, ours in zip(tried, documents, told):
                    with self.subTest(name=name, settings=settings, length=length):
                        press = load_press(export(document, "kvpress", "--length", length))
                        cut = prefilled(model, ids, press)
                        if name == "adakv":
                            kept = unmasked(model, length)
                        else:
                            kept = [rows_of(layer, whole) for layer, whole in zip(cut.layers, full.layers)]
                        self.assertEqual(kept, ours["positions"])
                        cache = kvatlas_transformers.load(document).cache(model)
                        with torch.no_grad():
                            model(ids, past_key_values=cache)
                        self.assertEqual(cache.kept(), ours["positions"])
                        model.set_attn_implementation("sdpa")

    def test_grouped_queries(self):
        self.check(small_llama(3, 6, 2))

    def test_a_kv_head_a_query_head(self):
        self.check(small_llama(2, 3, 3))

    def test_normed_queries(self):
        self.check(small_qwen3(3, 4, 2))


class PressScoresTest(unittest.TestCase):
    """A press as a method of one's own keeps what it keeps in kvpress, and so does the method that is built in."""

    PRESSES = {
        ("keydiff", ""): KeyDiffPress,
        ("snapkv", ""): lambda: SnapKVPress(window_size=16, kernel_size=7),
        ("criticalkv", ""): lambda: CriticalKVPress(SnapKVPress(window_size=16, kernel_size=7)),
        ("criticalkv", '{"share": 0, "epsilon": 0.5}'): lambda: CriticalKVPress(SnapKVPress(window_size=16, kernel_size=7), 0.5, 0),
        ("expected-attention", ""): ExpectedAttentionPress,
        ("expected-attention", '{"sink": 0, "future": 1, "epsilon": 0.1}'): lambda: ExpectedAttentionPress(
            n_sink=0, n_future_positions=1, epsilon=0.1
        ),
        ("expected-attention", '{"covariance": false, "values": false}'): lambda: ExpectedAttentionPress(
            use_covariance=False, use_vnorm=False
        ),
    }

    def test_keeps_the_same(self):
        length, budget = 300, 70
        ids = torch.randint(0, 128, (1, length), generator=torch.Generator().manual_seed(3))
        for model in (small_llama(3, 6, 2), small_qwen3(3, 4, 2)):
            full = prefilled(model, ids)
            for (name, settings), press in self.PRESSES.items():
                with self.subTest(name, settings=settings, model=type(model).__name__), torch.no_grad():
                    model.set_attn_implementation("sdpa")
                    theirs = press()
                    theirs.compression_ratio = 1 - (budget + 0.5) / length
                    kept = [rows_of(layer, whole) for layer, whole in zip(prefilled(model, ids, theirs).layers, full.layers)]
                    with kvatlas_transformers.PressScores(press(), model, budget) as score:
                        cache = kvatlas_transformers.Policy.scored(model, score, budget, name).cache(model)
                        model(ids, past_key_values=cache)
                    self.assertEqual(cache.kept(), kept)
                    document = selection_document(model, name, {"budget": budget} | json.loads(settings or "{}"))
                    cache = kvatlas_transformers.load(document).cache(model)
                    model(ids, past_key_values=cache)
                    self.assertEqual(cache.kept(), kept)
                    self.assertFalse(any(layer.self_attn._forward_pre_hooks for layer in model.model.layers))


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    unittest.main()
