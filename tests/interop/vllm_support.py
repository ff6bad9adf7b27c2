# SPDX-License-Identifier: Apache-2.0
"""What the tests of vLLM share: the plugin's wheel, installed beside the tests, exported files, and engines."""

import contextlib
import gc
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import support

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # so that tests can look at the blocks
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


def install_plugin() -> None:
    """Builds the wheel and unpacks it where Python looks, also in processes that are started from here."""
    folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
    builder = support.ROOT / "export/python/build_wheel.py"
    subprocess.run([sys.executable, builder, folder], check=True, capture_output=True)
    (wheel,) = folder.glob("kvatlas_vllm-*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder)
    name_of_the_build(folder)
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def name_of_the_build(folder: Path) -> None:
    """The build for CPUs is installed as vllm-cpu, and 'vllm serve' asks for the version of vllm."""
    try:
        version = importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return
    info = folder / f"vllm-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n", encoding="utf-8")


def exported(document, *options) -> Path:
    """The file that 'kvatlas export' writes for the document."""
    return support.export(document, "vllm", *options) / "vllm.yaml"


def arguments(file: Path) -> dict:
    """What vLLM's own reader makes of the file, as arguments of LLM()."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    given = {}
    for word in FlexibleArgumentParser().load_config_file(str(file)):
        if word.startswith("--"):
            values = given[word[2:].replace("-", "_")] = []
        else:
            values.append(word)
    read = {"additional_config": json.loads, "block_size": int}
    lists = ("kv_cache_dtype_skip_layers",)
    return {name: values if name in lists else read.get(name, str)(*values) for name, values in given.items()}


@contextlib.contextmanager
def engine(model, **options):
    """An LLM() that leaves nothing behind."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    llm = LLM(str(model), **({"dtype": "float32", "enforce_eager": True, "max_model_len": 2048} | options))
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()
        del llm
        gc.collect()
        cleanup_dist_env_and_memory()


def blocks(llm):
    """vLLM's manager of the cache's blocks."""
    return llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager


def sampling(count: int, **more):
    from vllm import SamplingParams

    return SamplingParams(**({"max_tokens": count, "temperature": 0, "ignore_eos": True, "detokenize": False} | more))


def generate(llm, prompts: list[list[int]], count: int) -> list[list[int]]:
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling(count), use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def evaluated(model, policy, prompts: list[list[int]], count: int, *options) -> list[list[int]]:
    """The tokens that 'kvatlas evaluate' generates under the policy."""
    file = Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / "prompts.jsonl"
    file.write_text("".join(json.dumps({"tokens": ids}) + "\n" for ids in prompts), encoding="utf-8")
    printed = support.run(
        *("evaluate", "--model", model, "--policy", policy, "--prompts", file, "--new", count, "--ignore-eos"),
        *("--generations", "--no-comparison", *options),
    )
    lines = [json.loads(line) for line in printed.splitlines()]
    return [line["tokens"] for line in lines if line["policy"] != "full"]
