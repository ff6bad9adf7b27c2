# SPDX-License-Identifier: Apache-2.0
"""vLLM serves exported policies with our plugin: the tokens and the blocks are those that kvatlas computes."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import urllib.request
from pathlib import Path

import support
import vllm_support
from vllm_support import arguments, blocks, engine, evaluated, exported, generate, sampling

LAYERS = 30
COUNT = 40


def setUpModule():
    vllm_support.install_plugin()


def lazy_document(lazy: list[bool], initial: int, recent: int, **shape) -> dict:
    model = {"architecture": "llama", "layers": LAYERS, "heads": 9, "kv_heads": 3, "head_dim": 64} | shape
    return {
        "schema": "kvatlas.policy/1.0",
        "model": model,
        "provenance": {"lengths": [1000]},
        "simlayerkv": {"settings": {"initial": initial, "recent": recent}, "result": {"lazy_layers": lazy}},
    }


def streaming_document(initial: int, recent: int) -> dict:
    settings = {"initial": initial, "recent": recent}
    return lazy_document([False] * LAYERS, 4, 4) | {
        "simlayerkv": {"settings": settings, "result": {"lazy_layers": [True] * LAYERS}}
    }


def demo_prompts(lengths: list[int]) -> list[list[int]]:
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(support.MODEL_DIR)((support.ROOT / "LICENSE").read_text("utf-8")).input_ids
    return [ids[100 * i : 100 * i + length] for i, length in enumerate(lengths)]


def held_bytes(llm, request: str) -> int:
    """Of the blocks that a request holds now."""
    manager = blocks(llm)
    group = max(len(one.layer_names) for one in manager.kv_cache_config.kv_cache_groups)
    total = 0
    for one in manager.coordinator.single_type_managers:
        held = sum(not block.is_null for block in one.req_to_blocks[request])
        total += held * group * one.kv_cache_spec.page_size_bytes
    return total


def promised_bytes(policy, prompt: int, new: int) -> int:
    """In float32, which takes twice the bytes that kvatlas counts."""
    options = ("--as", "vllm", "--context", prompt, "--new-tokens", new, "--json")
    return 2 * json.loads(support.run("inspect", policy, *options))["policies"][1]["sequence_bytes"]


class DemoModel(unittest.TestCase):
    """The tokens of the real model, and the bytes of its cache."""

    def check(self, document: dict, *options, lengths: tuple[int, ...] = (396, 300, 1004, 236, 33)):
        policy = support.written(document)
        prompts = demo_prompts(list(lengths))
        with engine(support.MODEL_DIR, **arguments(exported(policy, *options))) as llm:
            served = generate(llm, prompts, COUNT)
        self.assertEqual(served, evaluated(support.MODEL_DIR, policy, prompts, COUNT, "--as", "vllm"))
        return policy, prompts, served

    def test_full(self):
        prompts = demo_prompts([396, 300])
        with engine(support.MODEL_DIR, block_size=32) as llm:
            served = generate(llm, prompts, COUNT)
        self.assertEqual(served, evaluated(support.MODEL_DIR, "streaming:recent=9999", prompts, COUNT))

    def test_lazy_layers(self):
        for step, initial, recent in ((3, 4, 128), (2, 0, 60)):
            self.check(lazy_document([layer % step != 0 for layer in range(LAYERS)], initial, recent))

    def test_every_layer_lazy(self):
        self.check(streaming_document(4, 100))

    def test_whole_blocks_are_the_policy_itself(self):
        # 32 first tokens are a block, and of prompts of 108 more than whole blocks the window begins with one.
        document = lazy_document([layer % 3 != 0 for layer in range(LAYERS)], 32, 108)
        policy, prompts, served = self.check(document, lengths=(396, 300, 1004, 236))
        self.assertEqual(served, evaluated(support.MODEL_DIR, policy, prompts, COUNT))

    def test_blocks_held(self):
        document = lazy_document([layer % 3 != 0 for layer in range(LAYERS)], 4, 128)
        policy = support.written(document)
        (prompt,) = demo_prompts([500])
        with engine(support.MODEL_DIR, **arguments(exported(policy))) as llm:
            core = llm.llm_engine
            core.add_request("one", {"prompt_token_ids": prompt}, sampling(40))
            compared = 0
            while core.has_unfinished_requests():
                core.step()
                (running,) = blocks(llm).coordinator.single_type_managers[0].req_to_blocks or (None,)
                request = core.engine_core.engine_core.scheduler.requests.get(running)
                # The last step's token is in the cache; its own is not.
                if request and (new := request.num_computed_tokens - len(prompt)) > 0:
                    self.assertEqual(held_bytes(llm, running), promised_bytes(policy, len(prompt), new), new)
                    compared += 1
            self.assertGreater(compared, 30)


def random_model(kind: str) -> Path:
    """A checkpoint of random weights, with heads of 32 channels, the least that vLLM takes on a CPU."""
    import torch
    import transformers

    torch.manual_seed(1)
    shared = {
        "vocab_size": 256,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 4096,
        "initializer_range": 0.3,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    own = {
        "Gemma2": {"sliding_window": 48, "query_pre_attn_scalar": 32, "tie_word_embeddings": True},
        "Gemma3": {"sliding_window": 48, "query_pre_attn_scalar": 32, "tie_word_embeddings": True},
        "Mistral": {"sliding_window": None},
    }
    name = {"Gemma3": "Gemma3Text"}.get(kind, kind)
    config = getattr(transformers, f"{name}Config")(**(shared | own.get(kind, {})))
    folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / kind.lower()
    model = getattr(transformers, f"{kind}ForCausalLM")(config).float()
    if config.tie_word_embeddings:  # small, or each token is followed by itself
        model.get_input_embeddings().weight.data.mul_(0.01)
    model.save_pretrained(folder)
    return folder


def toward_zero(_, rows) -> list:
    """As kvatlas_transformers' Fp8.encode, but never away from zero."""
    import torch

    codes = rows.float().clamp(-448, 448).to(torch.float8_e4m3fn)
    too_large = codes.float().abs() > rows.float().abs()
    return [(codes.view(torch.uint8) - too_large.to(torch.uint8)).view(torch.float8_e4m3fn)]


def random_prompts(source: random.Random, lengths: list[int]) -> list[list[int]]:
    return [[source.randrange(3, 256) for _ in range(length)] for length in lengths]


SMALL = {"layers": 6, "heads": 4, "kv_heads": 2, "head_dim": 32}


class Architectures(unittest.TestCase):
    def check(self, kind: str, lazy: list[bool], **shape):
        model = random_model(kind)
        prompts = random_prompts(random.Random(kind), [150, 77, 301])
        policy = support.written(lazy_document(lazy, 4, 60, **(SMALL | {"architecture": kind.lower()} | shape)))
        with engine(model, **arguments(exported(policy)), skip_tokenizer_init=True) as llm:
            served = generate(llm, prompts, 50)
        self.assertEqual(served, evaluated(model, policy, prompts, 50, "--as", "vllm"))
        self.assertNotEqual(served, evaluated(model, "streaming:recent=9999", prompts, 50))

    def test_qwen(self):
        for kind in ("Qwen2", "Qwen3"):
            self.check(kind, [False, True, True, False, True, True])

    def test_mistral(self):
        self.check("Mistral", [True, False, True, False, True, False])

    def test_phi3(self):
        self.check("Phi3", [False, True, True, True, True, True])

    def test_gemma(self):
        # Layers with a window of the model's own stay as they are.
        self.check("Gemma2", [False, True, False, False, False, True])
        self.check("Gemma3", [False, False, False, False, False, True])


class NumberFormats(unittest.TestCase):
    """Some layers in fp8. On CPUs vLLM cuts numbers to E4M3 toward zero, while GPUs, and kvatlas, take the nearest
    number: with that changed in kvatlas_transformers, both store the same."""

    def test_layers_in_fp8(self):
        import torch
        from kvatlas_transformers import load, precision
        from transformers import AutoModelForCausalLM

        folder, (prompt,) = random_model("Llama"), random_prompts(random.Random(1), [150])
        formats = ["16", "fp8", "fp8", "16", "fp8", "fp8"]
        settings = {"settings": {"prefill": "rounded"}, "result": {"keys": formats, "values": formats}}
        document = {"precision": settings, **lazy_document([], 4, 4, **SMALL)}
        del document["simlayerkv"]
        policy = support.written(document)
        with unittest.mock.patch.object(precision.Fp8, "encode", toward_zero), torch.no_grad():
            cache = load(document).cache(model := AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval())
            expected = model(torch.tensor([prompt]), past_key_values=cache).logits[0, -1].log_softmax(-1)

        options = {"skip_tokenizer_init": True, "enable_prefix_caching": False, "max_logprobs": -1}
        if not {"avx512f", "amx_tile"} & set(Path("/proc/cpuinfo").read_text().split()):  # as the export's README says
            with (self.assertRaisesRegex(NotImplementedError, "AVX-512 or AMX"),
                  engine(folder, **arguments(exported(policy)), **options)):
                pass
            return
        with engine(folder, **arguments(exported(policy)), **options) as llm:
            core = llm.llm_engine
            core.add_request("one", {"prompt_token_ids": prompt}, sampling(2, logprobs=-1))
            (output,) = core.step()
            (held,) = blocks(llm).coordinator.single_type_managers[0].req_to_blocks.values()
            numbers = [block.block_id for block in held]
            layers = core.model_executor.driver_worker.worker.model_runner.compilation_config.static_forward_context
            stored = [layers[f"model.layers.{layer}.self_attn.attn"].kv_cache[numbers].clone() for layer in range(6)]
        words = ("--as", "vllm", "--context", len(prompt), "--new-tokens", 1, "--json")
        promised = json.loads(support.run("inspect", policy, *words))["policies"][1]["layers"]
        for layer, (blocks_of_layer, word) in enumerate(zip(stored, formats, strict=True)):
            # What is not in fp8 is in float32, which takes twice the bytes that kvatlas counts.
            self.assertEqual(blocks_of_layer.nbytes, promised[layer]["bytes"] * (2 if word == "16" else 1))
            if word == "fp8":
                blocks_of_layer = blocks_of_layer.view(torch.float8_e4m3fn).float()
            # The first block: of each KV head the keys of 64 tokens, in an order of their own, and then the values.
            keys, values = blocks_of_layer[0].reshape(2, 128, 32).split(64, dim=1)
            (band,) = cache.bands[layer]
            for got, mine in ((keys, band.keys.all()[:, :64]), (values, band.values.all()[:, :64])):
                differ = (got.flatten().sort()[0] - mine.flatten().sort()[0]).abs() > 1e-4
                self.assertLess(differ.float().mean(), 0.02)
        given = output.outputs[0].logprobs[0]
        got = torch.tensor([given[token].logprob for token in range(256)])
        self.assertLess((got.exp() * (got - expected)).sum(), 1e-3)


def lazy_options(rolling: bool) -> dict:
    """Of LLM(), for a small model, four of whose six layers are lazy."""
    given = arguments(exported(lazy_document([False, True, True, False, True, True], 4, 60, **SMALL)))
    given["additional_config"]["kvatlas"]["rolling"] = rolling
    return given | {"skip_tokenizer_init": True}


class Conversation(unittest.TestCase):
    def test_the_next_turn_of_a_conversation(self):
        """Its prompt holds what was generated, which a prompt sees in full: no generated block may serve it."""
        (first,) = random_prompts(random.Random(9), [200])
        (question,) = random_prompts(random.Random(10), [30])
        model, options = random_model("Llama"), lazy_options(rolling=False)
        with engine(model, **options, enable_prefix_caching=False) as llm:
            (answer,) = generate(llm, [first], 80)
            (expected,) = generate(llm, [first + answer + question], 20)
        with engine(model, **options, enable_prefix_caching=True) as llm:
            self.assertEqual(generate(llm, [first], 80), [answer])
            output = llm.generate([{"prompt_token_ids": first + answer + question}], sampling(20), use_tqdm=False)[0]
            self.assertEqual(list(output.outputs[0].token_ids), expected)
            self.assertEqual(output.num_cached_tokens, len(first) // 32 * 32)


class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = random_model("Llama")
        cls.document = lazy_document([False, True, True, False, True, True], 4, 60, **SMALL)

    def sentence(self, given: dict, model: Path | None = None) -> str:
        """What vLLM is ended with, before it starts a process or reads a weight."""
        from kvatlas_vllm import PolicyError
        from vllm import EngineArgs

        with self.assertRaises(PolicyError) as raised:
            EngineArgs(str(model or self.model), skip_tokenizer_init=True, **given).create_engine_config()
        said = str(raised.exception)
        self.assertTrue(said.isprintable() and len(said) < 300, said)
        return said

    def test_another_model(self):
        other = lazy_document([False, True], 4, 60, **(SMALL | {"layers": 2}))
        self.assertIn("for a model of 2 layers", self.sentence(arguments(exported(other))))

    def test_what_is_not_served(self):
        file = arguments(exported(self.document))
        said = self.sentence(file | {"disable_hybrid_kv_cache_manager": True})
        self.assertIn("--disable-hybrid-kv-cache-manager", said)
        ngram = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}
        self.assertIn("speculative decoding", self.sentence(file | {"speculative_config": ngram}))

    def test_files_that_were_changed(self):
        file = arguments(exported(self.document))
        policy = file["additional_config"]["kvatlas"]
        deep: list = []
        for _ in range(100_000):
            deep = [deep]
        numbers = (-1, 1.0, float("nan"), float("inf"), 1 << 41, -(10**5000), 10**5000)
        other = (None, "", "6", "\u202e\n\ud800", True, [], {}, [True], {"kvatlas": {}}, deep, [10**5000], "x" * 10**6)
        wrong = {
            "model": (*numbers, *other, policy["model"] | {"window": 3}, policy["model"] | {None: 3}),
            "lazy_layers": (*numbers, *other, [True] * 5, [True] * 7, [False] * 6, [1] * 6, [True] * 10**6),
            "initial": (*numbers, *other),
            "recent": (0, *numbers, *other),
            "rolling": (0, 1, *numbers, *(value for value in other if value is not True)),
        }
        self.assertEqual(set(wrong), set(policy))
        changed = [(name, policy | {name: value}) for name, values in wrong.items() for value in values]
        changed += [(name, {key: policy[key] for key in policy if key != name}) for name in policy]
        shape = policy["model"]
        for name, count in shape.items():
            # Also counts that another model may have.
            for value in (0, 1, count + 1, 1 << 15, *numbers, *other):
                changed.append(("model", policy | {"model": shape | {name: value}}))
            changed.append(("model", policy | {"model": {key: shape[key] for key in shape if key != name}}))
        for key in ("window", "Recent", "", "\u202e\n", "x" * 10**6, None, 3, 10**5000):
            changed.append(("unknown", policy | {key: 3}))
        changed += [("additional-config.kvatlas", value) for value in (*numbers, *other)]
        for word, document in changed:
            self.assertIn(word, self.sentence(file | {"additional_config": {"kvatlas": document}}))

    def test_foreign_files(self):
        file = arguments(exported(self.document))
        documents = (self.document, {"kvatlas": self.document})
        for given in ({}, {"other": 1}, {"kvatlas ": {}}, None, [], "kvatlas", *documents):
            self.assertIn("additional-config", self.sentence(file | {"additional_config": given}))
        # Without the worker extension too, a document is not passed over.
        for given in documents:
            self.assertIn("a policy document itself", self.sentence({"additional_config": given}))

    def test_layers_that_cannot_be_lazy(self):
        for kind, windows in (("Gemma2", [0, 2, 4]), ("Gemma3", [0, 1, 2, 3, 4])):
            model = random_model(kind)
            for layer in windows:
                given = arguments(exported(lazy_document([one == layer for one in range(6)], 4, 60, **SMALL)))
                self.assertIn(f"layer {layer} of {model} has sliding_attention", self.sentence(given, model))
        whole = arguments(exported(self.document)) | {"hf_overrides": {"sliding_window": 48}}
        self.assertIn("layer 1 of", self.sentence(whole, random_model("Mistral")))

    def test_a_window_of_the_models_own(self):
        model = random_model("Gemma2")
        document = lazy_document([True, True, False, False, False, True], 4, 60, **SMALL)
        # As for a model whose configuration does not say which layers have one.
        code = "import sys, json, kvatlas_vllm.plugin; kvatlas_vllm.plugin.check = lambda *_: None; "
        code += "from vllm import LLM; LLM(sys.argv[1], skip_tokenizer_init=True, "
        code += "dtype='float32', enforce_eager=True, max_model_len=512, **json.loads(sys.argv[2]))"
        done = subprocess.run(
            [sys.executable, "-c", code, model, json.dumps(arguments(exported(document)))],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has a window of the model's own and cannot be lazy", done.stderr)


class OpenAiServer(unittest.TestCase):
    """'vllm serve MODEL --config vllm.yaml', with nothing else but a port."""

    def serve(self, *options) -> subprocess.Popen:
        code = "import sys; from vllm.entrypoints.cli.main import main; sys.argv[0] = 'vllm'; sys.exit(main())"
        self.log = tempfile.TemporaryFile("w+")
        environment = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        words = [sys.executable, "-c", code, "serve", str(support.MODEL_DIR), "--port", "8731", *map(str, options)]
        server = subprocess.Popen(words, stdout=self.log, stderr=subprocess.STDOUT, env=environment)
        self.addCleanup(self.log.close)
        self.addCleanup(server.kill)
        return server

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def ask(self, **fields) -> dict:
        request = urllib.request.Request(
            "http://127.0.0.1:8731/v1/completions",
            json.dumps({"model": str(support.MODEL_DIR), "temperature": 0} | fields).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def test_completions(self):
        document = lazy_document([layer % 3 != 0 for layer in range(LAYERS)], 32, 108)
        policy, prompts = support.written(document), demo_prompts([396, 300])
        server = self.serve("--config", exported(policy), "--dtype", "float32", "--max-model-len", 2048)
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen("http://127.0.0.1:8731/health", timeout=2).close()
                    break
                except OSError:
                    self.assertIsNone(server.poll(), self.said())
                    time.sleep(1)
            fields = {"max_tokens": COUNT, "ignore_eos": True, "return_token_ids": True}
            answer = self.ask(prompt=prompts, **fields)
            served = [choice["token_ids"] for choice in answer["choices"]]
            self.assertEqual(served, evaluated(support.MODEL_DIR, policy, prompts, COUNT))
        finally:
            server.terminate()
            server.wait(60)

    def test_ends_with_a_sentence(self):
        document = lazy_document([layer % 3 != 0 for layer in range(LAYERS)], 4, 60)
        file = exported(document)
        changed = file.with_name("changed.yaml")
        changed.write_text(file.read_text("utf-8").replace("recent: 60", "recent: .nan"), encoding="utf-8")
        other_model = exported(lazy_document([False, True], 4, 60, layers=2))
        itself = support.written(document).rename(file.with_name("document.yaml"))
        for words, said in (
            (("--config", other_model), "kvatlas: the policy is for a model of 2 layers"),
            (("--config", changed), "kvatlas: additional-config.kvatlas.recent: found nan"),
            (("--config", file, "--additional-config", "{}"), "kvatlas: additional-config.kvatlas: missing"),
            (("--additional-config", json.dumps(document)), "kvatlas: additional-config: found a policy document itself"),
            (("--config", itself), "vllm: error: unrecognized arguments: --schema"),
        ):
            with self.subTest(said):
                server = self.serve(*words, "--dtype", "float32", "--max-model-len", 2048)
                self.assertNotEqual(server.wait(240), 0)
                self.assertTrue(self.said().splitlines()[-1].startswith(said), self.said())
                self.assertNotIn("Traceback", self.said())

    def test_ends_without_the_plugin(self):
        file = exported(lazy_document([layer % 3 != 0 for layer in range(LAYERS)], 32, 108))
        os.environ["VLLM_PLUGINS"] = "none"
        try:
            server = self.serve("--config", file, "--dtype", "float32", "--max-model-len", 2048)
        finally:
            del os.environ["VLLM_PLUGINS"]
        self.assertNotEqual(server.wait(120), 0)
        self.assertIn("vLLM has not loaded the plugin kvatlas", self.said())


if __name__ == "__main__":
    unittest.main()
