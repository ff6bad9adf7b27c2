# SPDX-License-Identifier: Apache-2.0
"""vLLM serves exported policies with our plugin: the tokens and the blocks are those that kvatlas computes."""

import contextlib
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


def budgets_document(budgets: list[int], window: int = 8, **shape) -> dict:
    """DynamicKV with the tokens that each layer keeps beside its window."""
    document = lazy_document([], 4, 4, **shape)
    del document["simlayerkv"]
    settings = {"window": window, "budget": max(budgets) + window}
    return document | {"dynamickv": {"settings": settings, "result": {"budgets": budgets}}}


def heads_documents(layers: int, kv_heads: int, **shape) -> list[dict]:
    """Policies whose KV heads keep different numbers of tokens: HeadKV, lazy heads. One layer has heads that are alike."""
    budgets = [[9 * ((layer * 5 + head * 3) % 7) for head in range(kv_heads)] for layer in range(layers)]
    budgets[1] = [20] * kv_heads
    lazy = [[(layer + head) % 2 == 0 for head in range(kv_heads)] for layer in range(layers)]
    lazy[1] = [True] * kv_heads
    empty = lazy_document([], 4, 4, layers=layers, kv_heads=kv_heads, **shape)
    del empty["simlayerkv"]
    return [
        empty | {"headkv": {"settings": {"window": 8, "budget": 50}, "result": {"budgets": budgets}}},
        empty | {"heads": {"settings": {"initial": 4, "recent": 40}, "result": {"lazy_heads": lazy}}},
    ]


# As text, of each method what has something to drop of prompts of 100 tokens.
SELECTIONS = (
    "lagkv:sink=4,lag=16,ratio=1/4",
    "local:sink=4,lag=16,ratio=1/2",
    "l2:sink=4,lag=16,ratio=1/4",
    "snapkv:window=4,budget=37,kernel=3,pooling=max",
    "pyramidkv:budget=50",
    "chunkkv:budget=60",
    "tova:budget=50",
    "keydiff:budget=50",
    "h2o:budget=50,heavy=20",
    "streaming:initial=4,recent=60",
    "streaming:initial=4,recent=60+rolling",
)


def exported_text(policy: str, model: Path) -> Path:
    """The file for a policy as text, for the model in this folder."""
    return exported(policy, "--config", model / "config.json", "--length", 1000)


@contextlib.contextmanager
def choices():
    """What is kept at each cut, in the order in which they are made: rows of what is held, [KV heads, rows]."""
    from kvatlas_vllm.cuts import METHODS

    made, before = [], {method: method.choose for method in METHODS.values()}

    def recorded(choose):
        def recording(self, *given):
            made.append(choose(self, *given))
            return made[-1]

        return recording

    for method, choose in before.items():
        method.choose = recorded(choose)
    try:
        yield made
    finally:
        for method, choose in before.items():
            method.choose = choose


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

    def check(self, document: dict):
        policy = support.written(document)
        prompts = demo_prompts([396, 300, 1004, 236, 33])
        with engine(support.MODEL_DIR, **arguments(exported(policy))) as llm:
            served = generate(llm, prompts, COUNT)
        self.assertEqual(served, evaluated(support.MODEL_DIR, policy, prompts, COUNT))

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

    def test_selections(self):
        """The tokens, and at the end of a prompt the positions that each layer and KV head keeps."""
        budgets = support.written(budgets_document([20 + 5 * (layer * 7 % LAYERS) for layer in range(LAYERS)]))
        prompts = demo_prompts([396, 300, 1004, 33])
        for policy in (budgets, "lagkv:lag=32,ratio=1/4", "snapkv:budget=128", "chunkkv:budget=128", "h2o:budget=128"):
            file = exported(policy) if isinstance(policy, Path) else exported_text(policy, support.MODEL_DIR)
            with self.subTest(policy), engine(support.MODEL_DIR, **arguments(file)) as llm:
                served = generate(llm, prompts, COUNT)
                self.assertEqual(served, evaluated(support.MODEL_DIR, policy, prompts, COUNT))
                self.assertEqual(kept_by(llm, prompts[0]), kept_positions(policy, prompts[0]))

    def test_heads(self):
        prompts = demo_prompts([396, 300, 1004, 33])
        for document in heads_documents(LAYERS, 3):
            policy = support.written(document)
            with self.subTest(list(document)[-1]), engine(support.MODEL_DIR, **arguments(exported(policy))) as llm:
                self.assertEqual(generate(llm, prompts, COUNT), evaluated(support.MODEL_DIR, policy, prompts, COUNT))

    def test_ties(self):
        """Of equal scores the earlier token is kept: here all keys of the prompt but the last are one token's at one
        position's distance, which only their order tells apart."""
        from kvatlas_vllm.cuts import METHODS, Layer
        import torch

        layer = Layer(torch.ones(2, 40, 8), torch.ones(2, 40, 8), torch.ones(4, 1, 8), 1.0, None, None)
        self.assertEqual(METHODS["tova"](budget=5).choose(layer, 40, 40).tolist(), [[0, 1, 2, 3, 39]] * 2)
        self.assertEqual(METHODS["keydiff"](budget=3).choose(layer, 40, 40).tolist(), [[0, 1, 2]] * 2)

    def test_blocks_held(self):
        lazy = lazy_document([layer % 3 != 0 for layer in range(LAYERS)], 4, 128)
        budgets = budgets_document([20 + 9 * (layer % 4) for layer in range(LAYERS)])
        lag = lazy_document([], 4, 4)
        del lag["simlayerkv"]
        lag |= {"lagkv": {"settings": {"sink": 4, "lag": 16, "ratio": "1/4"}}}
        (prompt,) = demo_prompts([500])
        for document in (lazy, budgets, lag, *heads_documents(LAYERS, 3)):
            policy = support.written(document)
            with self.subTest(list(document)[-1]), engine(support.MODEL_DIR, **arguments(exported(policy))) as llm:
                core = llm.llm_engine
                core.add_request("one", {"prompt_token_ids": prompt}, sampling(40))
                compared = 0
                while core.has_unfinished_requests():
                    core.step()
                    (running,) = blocks(llm).coordinator.single_type_managers[0].req_to_blocks or (None,)
                    request = core.engine_core.engine_core.scheduler.requests.get(running)
                    # The last step's token is in the cache; its own is not. The step behind the prompt still holds it.
                    if request and (new := request.num_computed_tokens - len(prompt)) > 1:
                        self.assertEqual(held_bytes(llm, running), promised_bytes(policy, len(prompt), new), new)
                        compared += 1
                self.assertGreater(compared, 30)


def kept_by(llm, prompt: list[int]) -> list[list[list[int]]]:
    """[layer][KV head]: what vLLM keeps of a prompt."""
    with choices() as made:
        generate(llm, [prompt], 3)
    layers = {}
    for group in blocks(llm).kv_cache_config.kv_cache_groups:
        layers |= {int(name.split(".")[2]): made.pop(0).tolist() for name in group.layer_names}
    return [layers[layer] for layer in sorted(layers)]


def kept_positions(policy, prompt: list[int], model=None) -> list[list[list[int]]]:
    """[layer][KV head]: what 'kvatlas evaluate' keeps of a prompt."""
    file = Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / "prompts.jsonl"
    file.write_text(json.dumps({"tokens": prompt}), encoding="utf-8")
    words = ("--prompts", file, "--new", 1, "--ignore-eos", "--generations", "--positions", "--no-comparison")
    printed = support.run("evaluate", "--model", model or support.MODEL_DIR, "--policy", policy, *words)
    (line,) = [one for one in map(json.loads, printed.splitlines()) if one["policy"] != "full"]
    return [[[at for first, end in head for at in range(first, end)] for head in layer] for layer in line["positions"]]


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
        "GptOss": {"sliding_window": 48, "num_local_experts": 4, "num_experts_per_tok": 2},
        "Gemma2": {"sliding_window": 48, "query_pre_attn_scalar": 32, "tie_word_embeddings": True},
        "Gemma3": {"sliding_window": 48, "query_pre_attn_scalar": 32, "tie_word_embeddings": True},
        "Mistral": {"sliding_window": None},
        "Qwen3Moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True},
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
        self.assertEqual(served, evaluated(model, policy, prompts, 50))
        self.assertNotEqual(served, evaluated(model, "streaming:recent=9999", prompts, 50))

    def check_selections(self, kind: str, policies: tuple[str, ...], *computed_with):
        model = random_model(kind)
        prompts = random_prompts(random.Random(kind), [150, 77, 301, 40, 64, 5])
        for policy in policies:
            for options in ({}, {"max_num_batched_tokens": 96, "enable_prefix_caching": False}):
                file = arguments(exported_text(policy, model))
                with self.subTest(f"{kind} {policy} {options}"), engine(model, **file, **options, skip_tokenizer_init=True) as llm:
                    self.assertEqual(generate(llm, prompts, 50), evaluated(model, policy, prompts, 50, *computed_with))

    def test_lazy_layers_and_a_selection_in_the_others(self):
        model = random_model("Llama")
        prompts = random_prompts(random.Random(8), [150, 77, 301, 40])
        lazy = lazy_document([False, True, False, False, True, False], 4, 20, **SMALL)
        for other in (
            budgets_document([30, 50, 40, 30, 60, 20], **SMALL),
            lazy | {"lagkv": {"settings": {"sink": 4, "lag": 16, "ratio": "1/4"}}},
        ):
            name = list(other)[-1]
            policy = support.written(lazy | {name: other[name], "compose": ["simlayerkv", name]})
            file = arguments(exported(policy, "--method", "composition"))
            with self.subTest(name), engine(model, **file, skip_tokenizer_init=True) as llm:
                self.assertEqual(generate(llm, prompts, 50), evaluated(model, policy, prompts, 50))

    def test_heads(self):
        model = random_model("Llama")
        prompts = random_prompts(random.Random(6), [150, 77, 301, 40, 64, 5])
        for document in heads_documents(**SMALL):
            policy = support.written(document)
            for options in ({}, {"max_num_batched_tokens": 96, "enable_prefix_caching": False}):
                file = arguments(exported(policy)) | options | {"skip_tokenizer_init": True}
                with self.subTest(f"{list(document)[-1]} {options}"), engine(model, **file) as llm:
                    self.assertEqual(generate(llm, prompts, 50), evaluated(model, policy, prompts, 50))

    def test_selections(self):
        self.check_selections("Llama", SELECTIONS)
        for kind in ("Qwen2", "Qwen3", "Mistral", "Phi3", "Qwen3Moe"):
            self.check_selections(kind, ("lagkv:sink=4,lag=16,ratio=1/4", "snapkv:budget=50"))

    def test_selections_beside_windows_of_the_models_own(self):
        for kind in ("Gemma2", "Gemma3", "GptOss"):
            self.check_selections(kind, ("lagkv:sink=4,lag=16,ratio=1/4", "snapkv:budget=50", "h2o:budget=50"), "--as", "vllm")

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

    def test_selections_in_fp8(self):
        """Kept rows are moved as they are stored, and scored by what they say. Where a number lies within float32's error of
        the next code, other tokens may follow than in the simulation, with a cut and without one."""
        if not {"avx512f", "amx_tile"} & set(Path("/proc/cpuinfo").read_text().split()):
            return
        model = random_model("Llama")
        prompts = random_prompts(random.Random(13), [150, 77, 301, 40, 64, 5])
        options = {"skip_tokenizer_init": True, "max_num_batched_tokens": 96}
        equal, kept, moved = [], 0, 0
        for word in ("fp8", "fp8_e5m2"):
            how = {"keys": f"{word}_cpu", "values": f"{word}_cpu", "prefill": "rounded"}
            rounded = "precision:" + ",".join(f"{name}={value}" for name, value in how.items())
            cases = [("no cut", {"block_size": 32}, rounded)]
            for policy in SELECTIONS if word == "fp8" else SELECTIONS[:1]:
                cases.append((policy, arguments(exported_text(policy, model)), f"{policy}+{rounded}"))
            for document in heads_documents(**SMALL) if word == "fp8" else ():
                name = list(document)[-1]
                both = document | {"precision": {"settings": how}, "compose": [name, "precision"]}
                cases.append((name, arguments(exported(support.written(document))), support.written(both)))
            for name, file, policy in cases:
                with self.subTest(f"{word} {name}"), engine(model, **file, kv_cache_dtype=word, **options) as llm:
                    served = [token for answer in generate(llm, prompts, 50) for token in answer]
                    computed = [token for answer in evaluated(model, policy, prompts, 50) for token in answer]
                    equal.append(sum(one == two for one, two in zip(served, computed, strict=True)))
                    print(f"{word} {name}: {equal[-1]} of {len(served)} tokens are equal", file=sys.stderr)
                    self.assertGreater(equal[-1], 0.6 * len(served))
                    if name in SELECTIONS:
                        here, there = kept_by(llm, prompts[0]), kept_positions(policy, prompts[0], model)
                        for mine, theirs in ((one, two) for a, b in zip(here, there) for one, two in zip(a, b)):
                            self.assertEqual(len(mine), len(theirs))
                            kept, moved = kept + len(theirs), moved + len(set(mine) - set(theirs))
        print(f"of {kept} positions that are kept {moved} are others", file=sys.stderr)
        self.assertGreater(sum(equal), 0.75 * 300 * len(equal))
        self.assertLess(moved, 0.01 * kept)


class WarmingUp(unittest.TestCase):
    def test_batches_without_requests(self):
        """Captures of graphs and idle ranks run batches that stand for no request, also between real ones, and drop
        nothing."""
        model, policy = random_model("Llama"), "snapkv:budget=50"
        prompts = random_prompts(random.Random(4), [150, 77])
        with engine(model, **arguments(exported_text(policy, model)), skip_tokenizer_init=True) as llm:
            runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
            expected = evaluated(model, policy, prompts, 20)
            for _ in range(2):
                runner._dummy_run(64, force_attention=True)
                self.assertEqual(generate(llm, prompts, 20), expected)

    def test_no_prompt_lengths(self):
        from kvatlas_vllm.backends import Cpu

        given = []

        class Metadata:
            rswa_prefix_lens = None
            block_table_tensor = None

        builder = Cpu.get_builder_cls()
        base = builder.__mro__[1]
        with unittest.mock.patch.object(base, "build", lambda self, prefix, common, *rest: given.append(common)):
            fake = unittest.mock.Mock(spec=builder, cut=object(), kv_cache_spec=unittest.mock.Mock(block_size=32))
            with unittest.mock.patch("kvatlas_vllm.attention.replace", lambda common, **changes: common):
                builder.build(fake, 0, Metadata)
        self.assertEqual(given, [Metadata])


class Conversation(unittest.TestCase):
    def test_the_next_turn_of_a_conversation(self):
        """Its prompt holds what was generated, which a prompt sees in full: no generated block may serve it."""
        (first,) = random_prompts(random.Random(9), [200])
        (question,) = random_prompts(random.Random(10), [30])
        model = random_model("Llama")
        options = arguments(exported_text("streaming:initial=4,recent=60", model)) | {"skip_tokenizer_init": True}
        with engine(model, **options, enable_prefix_caching=False) as llm:
            (answer,) = generate(llm, [first], 80)
            (expected,) = generate(llm, [first + answer + question], 20)
        with engine(model, **options, enable_prefix_caching=True) as llm:
            self.assertEqual(generate(llm, [first], 80), [answer])
            output = llm.generate([{"prompt_token_ids": first + answer + question}], sampling(20), use_tqdm=False)[0]
            self.assertEqual(list(output.outputs[0].token_ids), expected)
            # Of the 200 tokens 136 are dropped at the cut, which leaves the blocks before as they were.
            self.assertEqual(output.num_cached_tokens, 136 // 32 * 32)


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

    def test_scores_of_rounded_keys(self):
        """They are served on CPUs alone."""
        from kvatlas_vllm.settings import PolicyError, check, read
        from vllm import EngineArgs

        file = arguments(exported_text("keydiff:budget=50", self.model)) | {"kv_cache_dtype": "fp8"}
        config = EngineArgs(str(self.model), skip_tokenizer_init=True, **file).create_engine_config()
        config.device_config.device_type = "cuda"
        with self.assertRaisesRegex(PolicyError, "layer 0 is cut by what its keys say, which --kv-cache-dtype fp8 rounds"):
            check(read(file["additional_config"]), config)

    def test_files_that_were_changed(self):
        file = arguments(exported(self.document))
        policy = file["additional_config"]["kvatlas"]
        deep: list = []
        for _ in range(100_000):
            deep = [deep]
        numbers = (-1, 1.0, float("nan"), float("inf"), 1 << 41, -(10**5000), 10**5000)
        other = (None, "", "6", "\u202e\n\ud800", True, [], {}, [True], {"kvatlas": {}}, deep, [10**5000], "x" * 10**6)
        (cut,) = policy["cuts"]
        wrong = {
            "layers": (*numbers, *other, [6], [-1], [1, 1], [1.0], list(range(10**6))),
            "method": (*numbers, *other, "full"),
            "initial": (*numbers, *other),
            "recent": (0, *numbers, *other),
            "rolling": (0, 1, *numbers, *(value for value in other if value is not True)),
        }
        self.assertEqual(set(wrong), set(cut))
        changed = [(name, policy | {"cuts": [cut | {name: value}]}) for name, values in wrong.items() for value in values]
        changed += [(name, policy | {"cuts": [{key: cut[key] for key in cut if key != name}]}) for name in cut]
        changed += [("cuts", policy | {"cuts": value}) for value in (*numbers, *other, [cut, cut], [cut | {"window": 3}])]
        changed += [("model", policy | {"model": value}) for value in (*numbers, *other, policy["model"] | {None: 3})]
        changed += [(name, {key: policy[key] for key in policy if key != name}) for name in policy]
        snapkv = {"layers": [0], "method": "snapkv", "budget": 50, "window": 16, "kernel": 7, "pooling": "avg"}
        chunks = snapkv | {"method": "chunkkv", "chunk": 34}
        for said, one in (
            ("kernel is 6", snapkv | {"kernel": 6}),
            ("pooling", snapkv | {"pooling": "mean"}),
            ("budget is 15", snapkv | {"budget": 15}),
            ("chunk is 34", chunks),
            ("keep is 8", {"layers": [0], "method": "lagkv", "sink": 4, "lag": 8, "keep": 8, "variant": "lag"}),
            ("heavy is 51", {"layers": [0], "method": "h2o", "budget": 50, "heavy": 51}),
        ):
            changed.append((said, policy | {"cuts": [one]}))
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
        self.assertIn("has a window of the model's own and cannot be cut", done.stderr)


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
        document = lazy_document([layer % 3 != 0 for layer in range(LAYERS)], 4, 108)
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
            (("--config", changed), "kvatlas: additional-config.kvatlas.cuts[0].recent: found nan"),
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
        file = exported(lazy_document([layer % 3 != 0 for layer in range(LAYERS)], 4, 108))
        os.environ["VLLM_PLUGINS"] = "none"
        try:
            server = self.serve("--config", file, "--dtype", "float32", "--max-model-len", 2048)
        finally:
            del os.environ["VLLM_PLUGINS"]
        self.assertNotEqual(server.wait(120), 0)
        self.assertIn("vLLM has not loaded the plugin kvatlas", self.said())


if __name__ == "__main__":
    unittest.main()
