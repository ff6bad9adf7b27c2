# SPDX-License-Identifier: Apache-2.0
"""What clients and operators of vLLM may ask for beside tokens, under policies: several answers to a prompt, likelihoods,
seeds, ends of answers, priorities, and models that two processes hold together."""

import json
import os
import random
import subprocess
import sys
import unittest

import support
import vllm_support
from test_vllm import SMALL, budgets_document, exported_text, lazy_document, random_model, random_prompts
from vllm_support import arguments, blocks, engine, evaluated, exported, generate, sampling

POLICIES = ("lagkv:sink=4,lag=16,ratio=1/4", "snapkv:budget=50", "h2o:budget=50", "streaming:initial=4,recent=60+rolling")


def setUpModule():
    vllm_support.install_plugin()


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = random_model("Llama")
        cls.prompts = random_prompts(random.Random(12), [150, 77, 301, 40, 64, 5])

    def serving(self, policy: str, **options):
        return engine(self.model, **arguments(exported_text(policy, self.model)), skip_tokenizer_init=True, **options)

    def ask(self, llm, requests: list[tuple[list[int], object]], **more) -> list:
        prompts = [{"prompt_token_ids": ids} for ids, _ in requests]
        return llm.generate(prompts, [how for _, how in requests], use_tqdm=False, **more)

    def test_several_answers(self):
        """The answers to one prompt share what is read, and are cut each by itself."""
        for policy in POLICIES:
            with self.subTest(policy), self.serving(policy, enable_prefix_caching=True) as llm:
                several = self.ask(llm, [(ids, sampling(40, temperature=1, seed=7, n=3)) for ids in self.prompts])
                self.assertEqual([len({tuple(one.token_ids) for one in output.outputs}) for output in several], [3] * 6)
                for output, ids in zip(several, self.prompts):
                    single = self.ask(llm, [(ids, sampling(40, temperature=1, seed=7 + i)) for i in range(3)])
                    told = [list(one.token_ids) for one in output.outputs]
                    self.assertEqual(told, [list(one.outputs[0].token_ids) for one in single])
                self.assertEqual(blocks(llm).block_pool.get_num_free_blocks(), blocks(llm).block_pool.num_gpu_blocks - 1)

    def test_likelihoods(self):
        """Those of a crowd are those that each request has alone; the prompt's are those of the full cache."""
        for policy in POLICIES:
            how = sampling(30, logprobs=3, prompt_logprobs=1)
            with self.subTest(policy), self.serving(policy, max_num_batched_tokens=96, max_num_seqs=8) as llm:
                crowd = self.ask(llm, [(ids, how) for ids in self.prompts])
                alone = [self.ask(llm, [(ids, how)])[0] for ids in self.prompts]
            with engine(self.model, skip_tokenizer_init=True) as llm:
                full = self.ask(llm, [(ids, how) for ids in self.prompts])
            for one, other, plain in zip(crowd, alone, full):
                for mine, theirs in ((one.outputs[0].logprobs, other.outputs[0].logprobs), (one.prompt_logprobs, plain.prompt_logprobs)):
                    self.assertEqual(len(mine), len(theirs))
                    for here, there in zip(mine, theirs):
                        for token in set(here or ()) & set(there or ()):
                            self.assertAlmostEqual(here[token].logprob, there[token].logprob, delta=2e-3)

    def test_ends_of_answers(self):
        """A request that ends early leaves its blocks to others."""
        policy = POLICIES[0]
        with self.serving(policy) as llm:
            whole = generate(llm, self.prompts, 40)
            ended = self.ask(llm, [(ids, sampling(40, stop_token_ids=[one[20]])) for ids, one in zip(self.prompts, whole)])
            for one, output in zip(whole, ended):
                self.assertEqual(list(output.outputs[0].token_ids), one[: one.index(one[20]) + 1])
            self.assertEqual(generate(llm, self.prompts, 40), whole)

    def test_priorities(self):
        """Those that came later go first, and what they took the place of is computed again."""
        for policy in POLICIES:
            tight = {"scheduling_policy": "priority", "num_gpu_blocks_override": 16, "max_model_len": 448}
            with self.subTest(policy), self.serving(policy, max_num_batched_tokens=96, max_num_seqs=8, **tight) as llm:
                scheduler, preempted = llm.llm_engine.engine_core.engine_core.scheduler, []
                preempt = scheduler._preempt_request

                def counted(request, *more, **named) -> None:
                    preempted.append(request.request_id)
                    preempt(request, *more, **named)

                scheduler._preempt_request = counted
                core, served = llm.llm_engine, {}
                waiting = [(f"{turn}", ids) for turn, ids in enumerate(self.prompts * 3)]
                while waiting or core.has_unfinished_requests():
                    if waiting:
                        name, ids = waiting.pop(0)
                        core.add_request(name, {"prompt_token_ids": ids}, sampling(40), priority=-int(name))
                    served |= {one.request_id: list(one.outputs[0].token_ids) for one in core.step() if one.finished}
                self.assertTrue(preempted)
                expected = evaluated(self.model, policy, self.prompts, 40)
                self.assertEqual([served[str(turn)] for turn in range(18)], expected * 3)

    def test_thousands_of_requests(self):
        """5000 requests, many of one beginning, leave nothing behind."""
        source = random.Random(9)
        asked = [(self.prompts[2][: source.randrange(1, 200)] + ids[: source.randrange(1, 40)], source.randrange(1, 12))
                 for ids in source.choices(self.prompts, k=5000)]  # fmt: skip
        with self.serving("snapkv:budget=50", max_num_seqs=24, max_num_batched_tokens=256, num_gpu_blocks_override=200, max_model_len=448) as llm:
            outputs = self.ask(llm, [(ids, sampling(count)) for ids, count in asked])
            self.assertEqual([len(one.outputs[0].token_ids) for one in outputs], [count for _, count in asked])
            pool = blocks(llm).block_pool
            self.assertEqual(pool.get_num_free_blocks(), pool.num_gpu_blocks - 1)
            for one in blocks(llm).coordinator.single_type_managers:
                self.assertFalse(one.req_to_blocks or one.num_cached_block)
            runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
            self.assertLessEqual(max(len(layer.impl.seen) for layer in runner.compilation_config.static_forward_context.values()), 48)
            few = source.sample(range(5000), 40)
            alone = [generate(llm, [asked[i][0]], asked[i][1])[0] for i in few]
            self.assertEqual([list(outputs[i].outputs[0].token_ids) for i in few], alone)


class TwoProcesses(unittest.TestCase):
    def test_tensor_parallel(self):
        """Each process has half of the KV heads, and decides for them alone."""
        model, prompts = random_model("Llama"), random_prompts(random.Random(4), [150, 77, 301, 40])
        code = "import json, sys; from vllm import LLM, SamplingParams\n"
        code += "if __name__ == '__main__':\n"
        code += "    model, options, prompts = json.loads(sys.argv[1])\n"
        code += "    llm = LLM(model, tensor_parallel_size=2, dtype='float32', enforce_eager=True, max_model_len=2048, skip_tokenizer_init=True, **options)\n"
        code += "    how = SamplingParams(max_tokens=50, temperature=0, ignore_eos=True, detokenize=False)\n"
        code += "    out = llm.generate([{'prompt_token_ids': ids} for ids in prompts], how, use_tqdm=False)\n"
        code += "    print('TOKENS', json.dumps([list(one.outputs[0].token_ids) for one in out]))\n"
        lazy = support.written(lazy_document([False, True, True, False, True, True], 4, 60, **SMALL))
        budgets = support.written(budgets_document([30, 50, 40, 30, 60, 20], **SMALL))
        for policy in (*POLICIES, lazy, budgets):
            file = exported_text(policy, model) if isinstance(policy, str) else exported(policy)
            given = json.dumps([str(model), arguments(file), prompts])
            with self.subTest(policy):
                words, bound = [sys.executable, "-c", code, given], os.environ | {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
                done = subprocess.run(words, env=bound, capture_output=True, text=True, check=False, timeout=600)
                told = [line for line in done.stdout.splitlines() if line.startswith("TOKENS ")]
                self.assertEqual(done.returncode, 0, done.stderr[-3000:])
                self.assertEqual(json.loads(told[0][7:]), evaluated(model, policy, prompts, 50))


if __name__ == "__main__":
    unittest.main()
