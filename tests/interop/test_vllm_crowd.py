# SPDX-License-Identifier: Apache-2.0
"""vLLM under many requests, with a cache far too small for all of them: none sees anything of another, and neither a
block nor memory is lost. One test goes on for as many seconds as KVATLAS_SOAK_SECONDS says, and one serves as many
requests, of which no two are alike, as KVATLAS_CROWD_REQUESTS says (docs/reliability.md)."""

import collections
import contextlib
import json
import os
import random
import statistics
import sys
import time
import unittest
from pathlib import Path

import support
import vllm_support
from test_vllm import SMALL, budgets_document, exported_text, heads_documents, lazy_document, random_model, random_prompts
from vllm_support import arguments, blocks, engine, evaluated, exported, generate, sampling

# Threads that wait awake keep a busy machine from its work.
os.environ["OMP_WAIT_POLICY"] = "passive"
SECONDS = float(os.environ.get("KVATLAS_SOAK_SECONDS", 40))
REQUESTS = int(os.environ.get("KVATLAS_CROWD_REQUESTS", 200))

SELECTIONS = (
    "lagkv:sink=4,lag=16,ratio=1/4",
    "snapkv:budget=60",
    "tova:budget=60",
    "keydiff:budget=60",
    "chunkkv:budget=60",
    "h2o:budget=60",
    "pyramidkv:budget=60",
)


def setUpModule():
    vllm_support.install_plugin()


@contextlib.contextmanager
def poisoned(llm, counts: collections.Counter):
    """Overwrites blocks of the cache, in the arrays of all layers, as soon as nobody may read what is in them:

    - blocks that are freed, except those that prefix caching knows by a hash, for it hands them, as they are, to later
      requests of the same prompt;
    - blocks that are handed out anew, those of prefix caching among them, before their new owner writes;
    - the block that stands in block tables in the place of freed ones.

    The poison is a huge number and not NaN: vLLM's kernel for CPUs, also without the plugin, reads whole blocks and
    multiplies the values behind a request's last token by zero."""
    pool = blocks(llm).block_pool
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    arrays = list({array.data_ptr(): array for array in runner.kv_caches}.values())
    free_blocks, get_new_blocks = pool.free_blocks, pool.get_new_blocks

    def poison(given) -> None:
        for array in arrays:
            array[[block.block_id for block in given]] = 1e30

    def free(given) -> None:
        given = list(given)
        free_blocks(given)
        unread = [block for block in given if block.ref_cnt == 0 and not block.is_null and block.block_hash is None]
        counts["blocks poisoned when freed"] += len(unread)
        poison(unread)

    def get_new(count: int) -> list:
        given = get_new_blocks(count)
        counts["blocks poisoned when handed out"] += len(given)
        poison(given)
        return given

    assert all(len(array) == pool.num_gpu_blocks for array in arrays)
    poison([pool.null_block])
    pool.free_blocks, pool.get_new_blocks = free, get_new
    try:
        yield
    finally:
        pool.free_blocks, pool.get_new_blocks = free_blocks, get_new_blocks


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Crowd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = random_model("Llama")
        source = random.Random(7)
        shared = random_prompts(source, [300])[0]
        cls.requests = []
        for _ in range(120):
            (prompt,) = random_prompts(source, [source.choice([3, 20, 64, 100, 200, 333, 500])])
            if source.random() < 0.3:
                prompt = shared[: source.randrange(30, 300)] + prompt
            cls.requests.append((prompt, source.randrange(1, 90)))

    def options(self, policy) -> dict:
        """Of LLM(), for a policy as text or a document's file, or for several, one for each layer."""
        if isinstance(policy, tuple):
            each = [self.options(one) for one in policy]
            policies = [one["additional_config"]["kvatlas"] for one in each]
            cuts = [one["cuts"][0] | {"layers": [layer]} for layer, one in enumerate(policies)]  # those that cut all layers alike
            return each[0] | {"additional_config": {"kvatlas": policies[0] | {"cuts": cuts}}}
        file = exported(policy) if isinstance(policy, Path) else exported_text(policy, self.model)
        return arguments(file) | {"skip_tokenizer_init": True}

    def alone(self, policy, numbers=None) -> dict[int, list[int]]:
        """Requests' tokens, by their numbers, when no other runs; those of some are compared with what kvatlas computes."""
        numbers = range(len(self.requests)) if numbers is None else numbers
        with engine(self.model, **self.options(policy), max_num_seqs=1, enable_prefix_caching=False) as llm:
            served = {number: generate(llm, [self.requests[number][0]], self.requests[number][1])[0] for number in numbers}
        if isinstance(policy, tuple):  # no policy of kvatlas
            return served
        few = sorted(numbers, key=lambda number: -len(self.requests[number][0]))[:6]
        prompts, most = [self.requests[i][0] for i in few], max(self.requests[i][1] for i in few)
        computed = evaluated(self.model, policy, prompts, most)
        self.assertEqual([served[i] for i in few], [one[: self.requests[i][1]] for i, one in zip(few, computed)])
        return served

    def some(self, source: random.Random, count: int) -> list[int]:
        """Numbers of requests."""
        return [source.randrange(len(self.requests)) for _ in range(count)]

    @contextlib.contextmanager
    def crowded(self, policy, caching: bool, counts: collections.Counter, **more):
        """An engine whose cache is small, with poison in what nobody may read. Preemptions are counted."""
        options = self.options(policy)
        # A block holds a group of layers; the longest request needs 28 blocks of each group.
        kinds = [len(cut["layers"]) for cut in options["additional_config"]["kvatlas"]["cuts"]]
        kinds += [6 - sum(kinds)] if sum(kinds) < 6 else []
        groups = sum(-(-layers // min(kinds)) for layers in kinds)
        tight = {"max_num_batched_tokens": 96, "max_num_seqs": 24, "num_gpu_blocks_override": 30 * groups, "max_model_len": 896}
        with engine(self.model, **options, **tight, enable_prefix_caching=caching, **more) as llm:
            scheduler = llm.llm_engine.engine_core.engine_core.scheduler
            preempt = scheduler._preempt_request

            def counted(*given, **named) -> None:
                counts["preemptions"] += 1
                preempt(*given, **named)

            scheduler._preempt_request = counted
            with poisoned(llm, counts):
                yield llm

    def wave(self, llm, expected: dict[int, list[int]], numbers: list[int], source: random.Random, counts: collections.Counter):
        """These requests, at random moments, some of which are aborted, until all have ended. Those that take the most
        likely tokens, and are not aborted, have the tokens that they have alone. Then no block is held."""
        core, pool = llm.llm_engine, blocks(llm).block_pool
        alive, waiting = {}, list(reversed(numbers))
        while waiting or core.has_unfinished_requests():
            while waiting and (not alive or source.random() < 0.6):
                name, number = str(counts["requests"]), waiting.pop()
                greedy = source.random() < 0.8
                prompt, length = self.requests[number]
                core.add_request(name, {"prompt_token_ids": prompt}, sampling(length, temperature=0 if greedy else 1))
                alive[name] = (number, greedy)
                counts["requests"] += 1
            for output in core.step():
                # One that is aborted may still be heard of.
                if output.finished and output.request_id in alive:
                    number, greedy = alive.pop(output.request_id)
                    counts["finished"] += 1
                    if greedy and number in expected:
                        self.assertEqual(list(output.outputs[0].token_ids), expected[number])
                        counts["compared"] += 1
            if alive and source.random() < 0.05:
                name = source.choice(list(alive))
                core.abort_request([name])
                del alive[name]
                counts["aborts"] += 1
        self.assertFalse(alive)
        # All but the block that stands in the place of freed ones.
        self.assertEqual(pool.get_num_free_blocks(), pool.num_gpu_blocks - 1)
        for one in blocks(llm).coordinator.single_type_managers:
            self.assertFalse(one.req_to_blocks or one.num_cached_block)
        self.assertFalse(core.engine_core.engine_core.scheduler.requests)

    def check_counts(self, counts: collections.Counter) -> None:
        poisoned = ("blocks poisoned when freed", "blocks poisoned when handed out")
        for what in ("compared", "aborts", "preemptions", *poisoned):
            self.assertGreater(counts[what], 0, what)

    def many_requests(self, policy, name: str) -> None:
        """40 requests, each three times, without prefix caching and with it."""
        source = random.Random(1)
        numbers = source.sample(range(len(self.requests)), 40)
        expected = self.alone(policy, numbers)
        for caching in (False, True):
            counts = collections.Counter()
            with self.crowded(policy, caching, counts) as llm:
                self.wave(llm, expected, source.sample(numbers * 3, 120), source, counts)
            print(json.dumps({"policy": name, "caching": caching} | counts), file=sys.stderr)
            self.check_counts(counts)

    def test_layers_and_heads(self):
        lazy = lazy_document([False, True, True, False, True, True], 4, 60, **SMALL)
        for document in (lazy, budgets_document([30, 50, 40, 30, 60, 20], **SMALL), heads_documents(**SMALL)[0]):
            with self.subTest(list(document)[-1]):
                self.many_requests(support.written(document), list(document)[-1])

    def test_selections(self):
        for policy in SELECTIONS:
            with self.subTest(policy):
                self.many_requests(policy, policy)

    def test_each_layer_by_another_method(self):
        self.many_requests(SELECTIONS[:6], "a method for each layer")

    def so_many_requests(self, policy: str) -> None:
        """Through one engine, no two of them alike: short ones, of which more run at once. Not all are asked alone too."""
        source, counts = random.Random(11), collections.Counter()
        lengths = [source.randrange(3, 150) for _ in range(REQUESTS)]
        self.requests = [(prompt, source.randrange(1, 24)) for prompt in random_prompts(source, lengths)]
        expected = self.alone(policy, source.sample(range(REQUESTS), min(REQUESTS, 120)))
        started = time.monotonic()
        with self.crowded(policy, True, counts) as llm:
            self.wave(llm, expected, list(range(REQUESTS)), source, counts)
        said = {"policy": policy, "seconds": round(time.monotonic() - started)}
        print(json.dumps(said | counts), file=sys.stderr)
        self.check_counts(counts)

    def test_so_many_requests(self):
        self.so_many_requests("snapkv:budget=40")

    def test_so_many_requests_that_are_cut_while_decoding(self):
        self.so_many_requests("lagkv:sink=4,lag=16,ratio=1/4")

    def test_steps_that_overlap(self):
        """The scheduler is a step ahead of the worker."""
        policy, counts, source = "lagkv:sink=4,lag=16,ratio=1/4", collections.Counter(), random.Random(5)
        expected = self.alone(policy)
        with self.crowded(policy, True, counts, async_scheduling=True) as llm:
            self.wave(llm, expected, self.some(source, 120), source, counts)
        self.check_counts(counts)

    def test_for_so_many_seconds(self):
        policy, counts, source, memory = "snapkv:budget=60", collections.Counter(), random.Random(3), []
        expected = self.alone(policy)
        started = time.monotonic()
        with self.crowded(policy, True, counts) as llm:
            while not memory or memory[-1][0] < SECONDS:
                self.wave(llm, expected, self.some(source, source.randrange(1, 200)), source, counts)
                memory.append((time.monotonic() - started, resident() / 2**20))
        self.check_counts(counts)
        after = [one for one in memory if one[0] > SECONDS / 10]  # what is loaded at first use is there
        part = max(1, len(after) // 10)
        first, last = (statistics.fmean(mib for _, mib in some) for some in (after[:part], after[-part:]))
        said = {"waves": len(memory), "first MiB": round(first, 1), "last MiB": round(last, 1)}
        said["least and most MiB"] = [round(pick(mib for _, mib in after), 1) for pick in (min, max)]
        if len(after) > 1:
            said["MiB an hour"] = round(3600 * statistics.linear_regression(*zip(*after)).slope, 1)
        print(json.dumps({"seconds": round(memory[-1][0])} | said | counts), file=sys.stderr)
        if SECONDS >= 600:
            self.assertLess(abs(last / first - 1), 0.02)


if __name__ == "__main__":
    unittest.main()
