# SPDX-License-Identifier: Apache-2.0
"""mlx-lm runs the exported config.json: masks and cache lengths are the policy's."""

import json
import tempfile
import unittest
from pathlib import Path

import mlx.core as mx
import support
from mlx_lm.models import cache, gemma3_text, llama

LAYERS, RECENT, LENGTH = 6, 16, 50
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 128,
}
GEMMA = LLAMA | {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 1024}


def exported_config(config: dict, lazy: list[int], architecture: str) -> dict:
    document = {
        "schema": "kvatlas.policy/1.0",
        "model": {"architecture": architecture, "head_dim": 16, "heads": 4, "kv_heads": 2, "layers": LAYERS},
        "provenance": {"lengths": [LENGTH]},
        "simlayerkv": {
            "settings": {"initial": 0, "recent": RECENT},
            "result": {"lazy_layers": [layer in lazy for layer in range(LAYERS)]},
        },
    }
    path = Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    folder = support.export(document, "mlx-lm", "--config", path)
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


class MlxTest(unittest.TestCase):
    def check(self, module, config: dict, lazy: list[int], architecture: str):
        mx.random.seed(0)
        model = module.Model(module.ModelArgs.from_dict(exported_config(config, lazy, architecture)))
        caches = cache.make_prompt_cache(model)
        ids = mx.random.randint(3, 128, (1, LENGTH))
        model(ids[:, :-1], cache=caches)
        model(ids[:, -1:], cache=caches)
        for layer, held in enumerate(caches):
            if layer in lazy:
                self.assertIsInstance(held, cache.RotatingKVCache)
                self.assertEqual((held.max_size, held.keep), (RECENT, 0))
            else:
                self.assertIsInstance(held, cache.KVCache)
            self.assertEqual(min(held.state[0].shape[2], held.offset), RECENT if layer in lazy else LENGTH)

    def test_llama(self):
        self.check(llama, LLAMA, [1, 2, 4], "llama")

    def test_gemma3_has_smaller_windows(self):
        self.check(gemma3_text, GEMMA, [0, 1, 2, 3, 4], "gemma3")

    def test_the_window_masks_the_prefill(self):
        """After two lazy layers a token reaches as far as two windows do."""
        mx.random.seed(0)
        model = llama.Model(llama.ModelArgs.from_dict(exported_config(LLAMA, [0, 1], "llama"))).model
        ids = mx.random.randint(3, 128, (1, LENGTH))
        other = mx.concatenate([(ids[:, :1] + 1) % 128, ids[:, 1:]], axis=1)
        hidden = []
        for tokens in (ids, other):
            state = model.embed_tokens(tokens)
            mask = llama.create_attention_mask(state, None, window_size=model.sliding_window)
            for layer in model.layers[:2]:
                state = layer(state, mask, cache=None)
            hidden.append(state)
        reach = 2 * (RECENT - 1)
        self.assertTrue(mx.array_equal(hidden[0][:, reach + 1 :], hidden[1][:, reach + 1 :]).item())
        self.assertFalse(mx.array_equal(hidden[0][:, reach], hidden[1][:, reach]).item())


if __name__ == "__main__":
    unittest.main()
