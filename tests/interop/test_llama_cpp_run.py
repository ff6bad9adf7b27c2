# SPDX-License-Identifier: Apache-2.0
"""llama.cpp runs a model under the exported metadata: its tokens and the bytes of its caches are those that kvatlas computes."""

import ctypes
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import support

sys.path.insert(0, str(support.ROOT / "tests/bench"))
from results import CACHE, gemma_model  # noqa: E402

log: list[str] = []


@llama_cpp.llama_log_callback
def keep_log(_level, text, _data):
    log.append(text.decode("utf-8", "replace"))


llama_cpp.llama_log_set(keep_log, ctypes.c_void_p(0))


def in_float32(source: Path, target: Path, without: tuple[str, ...] = ()) -> Path:
    """The model with all weights restored, so that llama.cpp computes in float32 as kvatlas does; without the metadata that have these words."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    if "tokenizer." in without:
        writer.add_tokenizer_model("no_vocab")
        if f"{writer.arch}.vocab_size" not in reader.fields:
            writer.add_vocab_size(int(next(t for t in reader.tensors if t.name == "token_embd.weight").shape[1]))
    for field in reader.fields.values():
        if any(word in field.name for word in without):
            continue
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "general.file_type"):
            kind = field.types[0]
            writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def set_metadata(exported: Path, source: Path, target: Path) -> Path:
    words = [exported / "set_gguf_metadata.py", exported / "gguf_metadata.json", source, target]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return target


def generate(model: Path, prompt: list[int], count: int) -> tuple[list[int], list[tuple[int, int, float]]]:
    """The tokens, and of each cache its cells, layers and MiB, from the log. The cache of the windows is as small as llama-server makes it."""
    log.clear()
    f32 = llama_cpp.GGML_TYPE_F32
    llama = llama_cpp.Llama(
        str(model), n_ctx=len(prompt) + count, n_threads=2, type_k=f32, type_v=f32, swa_full=False, verbose=True
    )
    tokens = []
    for token in llama.generate(prompt, temp=0.0, repeat_penalty=1.0):
        tokens.append(int(token))
        if len(tokens) == count:
            break
    llama.close()
    sizes = re.findall(r"size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers", "".join(log))
    return tokens, [(int(cells), int(layers), float(size)) for size, cells, layers in sizes]


def prompt_file(ids: list[int]) -> Path:
    file = Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / "prompts.jsonl"
    file.write_text(json.dumps({"tokens": ids}) + "\n", encoding="utf-8")
    return file


def evaluated(model: Path, policy: Path, prompt: list[int], count: int) -> list[int]:
    words = ("--model", model, "--policy", policy, "--prompts", prompt_file(prompt), "--new", count, "--ignore-eos")
    printed = support.run("evaluate", *words, "--as", "llama.cpp", "--generations", "--no-comparison")
    return [json.loads(line)["tokens"] for line in printed.splitlines()][-1]


def random_gemma2(path: Path, layers: int) -> Path:
    """A model without a vocabulary, of random weights."""
    hidden, wide, heads, kv_heads, head, tokens = 128, 256, 4, 2, 32, 256
    writer = gguf.GGUFWriter(path, "gemma2")
    writer.add_block_count(layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(wide)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(1024)
    writer.add_attn_logit_softcapping(50.0)
    writer.add_final_logit_softcapping(30.0)
    writer.add_vocab_size(tokens)
    writer.add_tokenizer_model("no_vocab")
    random = np.random.default_rng(2)

    def matrix(name: str, *shape: int, scale: float = 0.3) -> None:
        writer.add_tensor(f"{name}.weight", (scale * random.standard_normal(shape)).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))

    matrix("token_embd", tokens, hidden, scale=0.01)  # small, or each token is followed by itself
    norm("output_norm")
    for layer in range(layers):
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            norm(f"blk.{layer}.{name}")
        for name, rows in (("attn_q", heads * head), ("attn_k", kv_heads * head), ("attn_v", kv_heads * head)):
            matrix(f"blk.{layer}.{name}", rows, hidden)
        matrix(f"blk.{layer}.attn_output", hidden, heads * head)
        matrix(f"blk.{layer}.ffn_gate", wide, hidden)
        matrix(f"blk.{layer}.ffn_up", wide, hidden)
        matrix(f"blk.{layer}.ffn_down", hidden, wide)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


TINY = support.ROOT / "tests/golden/data/tiny2_gguf"
TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0, "q4_0": llama_cpp.GGML_TYPE_Q4_0}


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


class OfTypes:
    """The model with a cache of these types, where every token attends to what the cache holds."""

    def __init__(self, model: Path, length: int, keys: int, values: int):
        log.clear()
        options = {"n_ctx": length, "n_threads": 2, "logits_all": True, "flash_attn": True, "verbose": True}
        self.llama = llama_cpp.Llama(str(model), type_k=keys, type_v=values, **options)
        found = re.findall(r"K \((\w+)\): +([\d.]+) MiB, V \((\w+)\): +([\d.]+) MiB", "".join(log))
        self.sizes = [(k, float(k_size), v, float(v_size)) for k, k_size, v, v_size in found]

    def continued(self, prompt: list[int], count: int) -> list[int]:
        self.llama.reset()
        self.llama.eval(prompt)
        tokens = []
        while len(tokens) < count:
            tokens.append(int(self.llama.scores[self.llama.n_tokens - 1].argmax()))
            self.llama.eval(tokens[-1:])
        return tokens

    def next_tokens(self, prompt: list[int], continuation: list[int]) -> np.ndarray:
        """Log-probabilities at each token of the continuation: [token, vocabulary]."""
        self.llama.reset()
        self.llama.eval(prompt)
        for token in continuation[:-1]:
            self.llama.eval([token])
        rows = self.llama.scores[len(prompt) - 1 : len(prompt) - 1 + len(continuation)]
        return log_probabilities(rows.copy())


def document(architecture: str, lazy: list[bool], recent: int, **shape) -> dict:
    return {
        "schema": "kvatlas.policy/1.0",
        "model": {"architecture": architecture, "layers": len(lazy)} | shape,
        "provenance": {"lengths": [1200]},
        "simlayerkv": {"settings": {"initial": 0, "recent": recent}, "result": {"lazy_layers": lazy}},
    }


class LlamaCppRun(unittest.TestCase):
    def check(self, model: Path, policy: dict, config: dict, prompt: list[int], count: int) -> None:
        folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        file = support.written(policy)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        exported = support.export(file, "llama.cpp", "--config", folder / "config.json")
        windowed = set_metadata(exported, model, folder / "windows.gguf")
        tokens, caches = generate(windowed, prompt, count)
        self.assertEqual(tokens, evaluated(model, file, prompt, count))
        self.assertNotEqual(tokens, generate(model, prompt, count)[0])
        # The file that was written is read by kvatlas as the model that llama.cpp runs.
        words = ("--model", windowed, "--prompts", prompt_file(prompt), "--new", count, "--ignore-eos", "--json")
        self.assertEqual(tokens, json.loads(support.run("generate", *words))["tokens"])

        options = ("--as", "llama.cpp", "--context", len(prompt), "--new-tokens", count, "--json")
        layers = json.loads(support.run("inspect", file, *options))["policies"][1]["layers"]
        lazy = policy["simlayerkv"]["result"]["lazy_layers"]
        for (cells, of_layers, size), windows in zip(caches, (False, True), strict=True):
            mine = [layer for layer, is_lazy in zip(layers, lazy, strict=True) if is_lazy == windows]
            self.assertEqual((cells, of_layers), (mine[0]["tokens"], len(mine)))
            # In float32, which takes twice the bytes that kvatlas counts. The log has two digits.
            self.assertAlmostEqual(size, 2 * sum(layer["bytes"] for layer in mine) / 2**20, delta=0.006)

    def test_gemma_3_270m(self):
        model = in_float32(gemma_model(CACHE), Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / "gemma.gguf")
        text = (support.ROOT / "LICENSE").read_text("utf-8")
        vocabulary = llama_cpp.Llama(str(model), vocab_only=True, verbose=False)
        prompt = vocabulary.tokenize(text.encode())[:1200]
        vocabulary.close()
        lazy = [(layer + 1) % 6 != 0 for layer in range(18)]
        policy = document("gemma3", lazy, 128, head_dim=256, heads=4, kv_heads=1)
        config = {"model_type": "gemma3_text", "num_hidden_layers": 18, "sliding_window": 512}
        self.check(model, policy, config, prompt, 40)

    def test_a_list_of_layers(self):
        """Gemma 2's full layers can have windows too, in any order."""
        model = random_gemma2(Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / "gemma2.gguf", 6)
        prompt = np.random.default_rng(3).integers(0, 256, 900).tolist()
        policy = document("gemma2", [True, True, True, False, True, False], 100, head_dim=32, heads=4, kv_heads=2)
        config = {"model_type": "gemma2", "num_hidden_layers": 6, "sliding_window": 1024}
        self.check(model, policy, config, prompt, 40)

    def test_gpt_oss(self):
        """Sinks and experts; layer 1 is a full one, and layers 0 and 2 have windows of 32 tokens. llama.cpp rounds the bounds of YaRN, which
        moves every channel of heads as small as these: the model is run without it."""
        folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        model = in_float32(TINY / "gpt_oss.gguf", folder / "model.gguf", without=("tokenizer.", "rope.scaling."))
        config = json.loads((TINY.parent / "tiny2/gpt_oss/config.json").read_text("utf-8"))
        policy = document("gpt_oss", [True, True, True, False], 32, head_dim=16, heads=4, kv_heads=2)
        prompt = np.random.default_rng(5).integers(3, config["vocab_size"], 300).tolist()
        self.check(model, policy, config, prompt, 30)


class NumberFormats(unittest.TestCase):
    """The cache in the types that were exported: its bytes, and what they cost."""

    def test_types_of_keys_and_values(self):
        folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        model = in_float32(support.MODEL, folder / "model.gguf")
        text = (support.ROOT / "LICENSE").read_text("utf-8")
        vocabulary = llama_cpp.Llama(str(model), vocab_only=True, verbose=False)
        ids = vocabulary.tokenize(text.encode())
        vocabulary.close()
        prompts, count, length = [ids[:236], ids[300:420]], 16, 512
        full = OfTypes(model, length, llama_cpp.GGML_TYPE_F32, llama_cpp.GGML_TYPE_F32)
        own = [full.continued(prompt, count) for prompt in prompts]
        expected = [full.next_tokens(prompt, tokens) for prompt, tokens in zip(prompts, own, strict=True)]
        full.llama.close()
        prompt_lines = folder / "prompts.jsonl"
        prompt_lines.write_text("".join(json.dumps({"tokens": one}) + "\n" for one in prompts), encoding="utf-8")
        for keys, values in (("q8_0", "q8_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0")):
            with self.subTest(keys=keys, values=values):
                policy = document("llama", [False] * 30, 4, head_dim=64, heads=9, kv_heads=3)
                del policy["simlayerkv"]
                policy = support.written(policy | {"precision": {"settings": {"keys": keys, "values": values}}})
                exported = support.export(policy, "llama.cpp")
                variables = dict(line.split("=") for line in (exported / "cache_types.env").read_text("utf-8").split())
                self.assertEqual(variables["LLAMA_ARG_FLASH_ATTN"], "on")
                types = [TYPES[variables[f"LLAMA_ARG_CACHE_TYPE_{side}"]] for side in "KV"]
                theirs = OfTypes(model, length, *types)
                words = ("--model", model, "--policy", f"precision:keys={keys},values={values}", "--prompts", prompt_lines)
                options = ("--new", count, "--ignore-eos", "--as", "llama.cpp", "--json")
                ours = json.loads(support.run("evaluate", *words, *options))["policies"][-1]
                kls = []
                for prompt, tokens, rows in zip(prompts, own, expected, strict=True):
                    found = theirs.next_tokens(prompt, tokens)
                    kls.append((np.exp(rows) * (rows - found)).sum(axis=-1).mean())
                theirs.llama.close()
                # llama.cpp rounds queries to 8 bits too, which shows where keys and values have no fewer.
                print(f"{keys}, {values}: KL {np.mean(kls):.5f} in llama.cpp, {ours['kl']['mean']:.5f} in kvatlas")
                self.assertLess(np.mean(kls), 2 * ours["kl"]["mean"])
                self.assertGreater(np.mean(kls), ours["kl"]["mean"] / 2)

                shape = ("--as", "llama.cpp", "--context", length, "--new-tokens", 0, "--json")
                layers = json.loads(support.run("inspect", policy, *shape))["policies"][-1]["layers"]
                ((k_type, k_size, v_type, v_size),) = theirs.sizes
                self.assertEqual((k_type, v_type), (keys, values))
                self.assertAlmostEqual(k_size + v_size, sum(layer["bytes"] for layer in layers) / 2**20, delta=0.02)


if __name__ == "__main__":
    unittest.main()
