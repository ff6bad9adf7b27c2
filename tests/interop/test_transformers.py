# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers runs the exported config.json: masks and cache lengths are the policy's."""

import inspect
import json
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import support
import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, cache_utils

LAYERS, LAZY, RECENT, LENGTH = 6, [1, 2, 4], 16, 50
SMALL = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def saved_model(model_type: str, **changes) -> Path:
    """A random checkpoint, saved with its own config.json."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **(SMALL | changes))
    folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def document(architecture: str, lazy: list[int] = LAZY, recent: int = RECENT) -> dict:
    model = {"architecture": architecture, "head_dim": 16, "heads": 4, "kv_heads": 2, "layers": LAYERS}
    settings = {"initial": 4, "recent": recent}
    result = {"lazy_layers": [layer in lazy for layer in range(LAYERS)]}
    return {
        "schema": "kvatlas.policy/1.0",
        "model": model,
        "provenance": {"lengths": [LENGTH]},
        "simlayerkv": {"settings": settings, "result": result},
    }


def with_exported_config(folder: Path, policy: dict, **how):
    """The checkpoint, after its config.json has given way to the exported one."""
    exported = support.export(policy, "transformers", "--config", folder / "config.json")
    (folder / "config.json").write_text((exported / "config.json").read_text(encoding="utf-8"), encoding="utf-8")
    return AutoModelForCausalLM.from_pretrained(folder, **how).eval()


def cache_lengths(cache) -> list[int]:
    return [layer.keys.shape[-2] for layer in cache.layers]


def expected_lengths(lazy: list[int] = LAZY, recent: int = RECENT) -> list[int]:
    """The window counts the query's own position, which is not in the cache yet."""
    return [recent - 1 if layer in lazy else LENGTH for layer in range(LAYERS)]


def prompt() -> torch.Tensor:
    return torch.randint(3, 128, (1, LENGTH), generator=torch.Generator().manual_seed(1))


class LlamaTest(unittest.TestCase):
    """Llama's cache is cut after a full prefill, and its mask knows of no window."""

    def setUp(self):
        self.folder = saved_model("llama")
        self.full = AutoModelForCausalLM.from_pretrained(self.folder).eval()
        self.ids = prompt()

    @torch.no_grad()
    def check(self, model, lengths: list[int]):
        full, cut = self.full(self.ids), model(self.ids)
        torch.testing.assert_close(cut.logits, full.logits, rtol=0, atol=0)
        self.assertEqual(cache_lengths(cut.past_key_values), lengths)
        for whole, kept in zip(full.past_key_values.layers, cut.past_key_values.layers):
            count = kept.keys.shape[-2]
            torch.testing.assert_close(kept.keys, whole.keys[:, :, -count:], rtol=0, atol=0)
            torch.testing.assert_close(kept.values, whole.values[:, :, -count:], rtol=0, atol=0)
        # The next token sees what is kept: the full model with its cache cut by hand says the same.
        for whole, count in zip(full.past_key_values.layers, lengths):
            whole.keys, whole.values = whole.keys[:, :, -count:], whole.values[:, :, -count:]
        token, position = torch.tensor([[7]]), torch.tensor([[LENGTH]])
        ours = model(token, past_key_values=cut.past_key_values, position_ids=position).logits
        by_hand = self.full(token, past_key_values=full.past_key_values, position_ids=position).logits
        torch.testing.assert_close(ours, by_hand)

    def test_lazy_layers(self):
        self.check(with_exported_config(self.folder, document("llama")), expected_lengths())

    def test_overrides_without_the_config(self):
        exported = support.export(document("llama"), "transformers")
        # As README.txt says it.
        fields = AutoConfig.from_pretrained(self.folder).to_dict()
        fields.update(json.loads((exported / "config_overrides.json").read_text(encoding="utf-8")))
        config = AutoConfig.for_model(**fields)
        self.check(AutoModelForCausalLM.from_pretrained(self.folder, config=config).eval(), expected_lengths())

    def test_config_beside_the_checkpoint(self):
        exported = support.export(document("llama"), "transformers", "--config", self.folder / "config.json")
        config = AutoConfig.from_pretrained(str(exported / "config.json"))
        self.check(AutoModelForCausalLM.from_pretrained(self.folder, config=config).eval(), expected_lengths())

    def test_budgets(self):
        policy = document("llama")
        del policy["simlayerkv"]
        budgets = [30, 2, 12, 40, 8, 20]
        policy["dynamickv"] = {"settings": {"window": 4, "budget": 24}, "result": {"budgets": budgets}}
        model = with_exported_config(self.folder, policy)
        self.check(model, [budget + 4 - 1 for budget in budgets])


class MaskingTest(unittest.TestCase):
    """Types whose windows mask: no query sees behind the window, in the prefill too."""

    @torch.no_grad()
    def check(self, model_type: str, architecture: str, lazy: list[int] = LAZY, **changes):
        folder = saved_model(model_type, **changes)
        model = with_exported_config(folder, document(architecture, lazy), attn_implementation="eager")
        out = model(prompt(), output_attentions=True)
        self.assertEqual(cache_lengths(out.past_key_values), expected_lengths(lazy))
        query, key = torch.meshgrid(torch.arange(LENGTH), torch.arange(LENGTH), indexing="ij")
        for layer, weights in enumerate(out.attentions):
            seen = key <= query
            if layer in lazy:
                seen &= query - key < RECENT
            self.assertTrue(torch.equal((weights[0] > 0).all(0), seen), f"layer {layer}")

    def test_qwen2(self):
        self.check("qwen2", "qwen2", use_sliding_window=False)

    def test_qwen3(self):
        self.check("qwen3", "qwen3", use_sliding_window=False)

    def test_gemma2(self):
        self.check("gemma2", "gemma2", [0, 1, 2, 4], sliding_window=32, query_pre_attn_scalar=16)

    def test_gemma3(self):
        self.check("gemma3_text", "gemma3", [0, 1, 2, 3, 4], sliding_window=32, query_pre_attn_scalar=16)

    def test_ministral(self):
        """The way out for checkpoints of Mistral."""
        self.check("ministral", "mistral", sliding_window=None)


class RefusedTest(unittest.TestCase):
    """What is refused does end in an error, or would change the model."""

    def test_mistral_and_phi3_end_in_an_error(self):
        for model_type in ("mistral", "phi3"):
            folder = saved_model(model_type, sliding_window=None)
            path = support.written(document(model_type))
            done = support.kvatlas("export", path, "--to", "transformers", "-o", folder / "out")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("shape error", done.stderr)
            types = ["sliding_attention" if layer in LAZY else "full_attention" for layer in range(LAYERS)]
            fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            fields |= {"layer_types": types, "sliding_window": RECENT}
            model = AutoModelForCausalLM.from_pretrained(folder, config=AutoConfig.for_model(**fields)).eval()
            with self.assertRaises((RuntimeError, ValueError, IndexError), msg=model_type), torch.no_grad():
                cache = model(prompt()).past_key_values
                model(torch.tensor([[7]]), past_key_values=cache)

    @torch.no_grad()
    def test_gemma3_full_layers_are_rotated_otherwise(self):
        """A full layer that is given a window changes the answers though the window is longer than the prompt."""
        folder = saved_model("gemma3_text", sliding_window=64, query_pre_attn_scalar=16)
        before = AutoModelForCausalLM.from_pretrained(folder).eval()(prompt()).logits
        fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        fields["layer_types"] = ["sliding_attention"] * LAYERS
        config = AutoConfig.for_model(**fields)
        after = AutoModelForCausalLM.from_pretrained(folder, config=config).eval()(prompt()).logits
        self.assertGreater((before - after).abs().max().item(), 1e-3)
        path = support.written(document("gemma3", [0, 1, 2, 3, 4, 5]))
        done = support.kvatlas(
            "export", path, "--to", "transformers", "--config", folder / "config.json", "-o", folder / "out"
        )
        self.assertIn("another base", done.stderr)


class QuantisedCacheTest(unittest.TestCase):
    """generation_config.json makes generate() use transformers' quantised cache. What rounds, optimum-quanto, is not here:
    a layer that rounds as it does to whole numbers stands in for it."""

    def exported(self, word: str) -> Path:
        policy = document("llama")
        del policy["simlayerkv"]
        policy["precision"] = {"settings": {"keys": word, "values": word}}
        return support.export(policy, "transformers")

    def generated(self, model, config=None):
        config = config or GenerationConfig()
        config.update(max_new_tokens=8, min_new_tokens=8, do_sample=False, return_dict_in_generate=True)
        return model.generate(prompt(), generation_config=config)

    def test_generates(self):
        model = AutoModelForCausalLM.from_pretrained(saved_model("llama")).eval()
        plain = self.generated(model)
        given = inspect.signature(cache_utils.QuantoQuantizedLayer).parameters
        # What the README of the export says of it.
        self.assertEqual((given["q_group_size"].default, given["residual_length"].default), (64, 128))

        class Rounding(cache_utils.QuantizedLayer):
            def _quantize(self, tensor, axis):
                low, high = tensor.amin(), tensor.amax()
                scale = (high - low) / (2**self.nbits - 1)
                return low + ((tensor - low) / scale).round() * scale

            def _dequantize(self, stored):
                return stored

        for word, bits in (("int4", 4), ("int2", 2)):
            config = GenerationConfig.from_pretrained(self.exported(word))
            with unittest.mock.patch.object(cache_utils, "QuantoQuantizedLayer", Rounding):
                out = self.generated(model, config=config)
            self.assertEqual([type(layer) for layer in out.past_key_values.layers], [Rounding] * LAYERS)
            for layer, whole in zip(out.past_key_values.layers, plain.past_key_values.layers):
                self.assertEqual(layer.nbits, bits)
                # The prompt is rounded, and up to 128 generated tokens are not.
                self.assertEqual((layer._quantized_keys.shape[-2], layer.keys.shape[-2]), (LENGTH, 7))
                self.assertLessEqual(len(layer._quantized_keys.unique()), 2**bits)
                self.assertFalse(torch.equal(layer._quantized_keys, whole.keys[:, :, :LENGTH]))
            self.assertNotEqual(out.sequences.tolist(), plain.sequences.tolist())


if __name__ == "__main__":
    unittest.main()
