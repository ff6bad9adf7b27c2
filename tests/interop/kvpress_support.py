# SPDX-License-Identifier: Apache-2.0
"""What the tests of kvpress share: its presses as the program exports them, and what both keep of a prompt."""

import json
import tempfile
from pathlib import Path

import torch
from support import MODEL_DIR, ROOT, run, written
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache


def demo_model() -> tuple:
    """The converted demo model as kvpress runs it, and the tokens of a long text."""
    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(MODEL_DIR, attn_implementation="sdpa").eval()
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    return model, AutoTokenizer.from_pretrained(MODEL_DIR)(text, return_tensors="pt").input_ids


def as_message(text: str) -> torch.Tensor:
    """The tokens of the text as a user's message to the demo model, up to where its answer begins."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
    message = [{"role": "user", "content": text}]
    written_out = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    return tokenizer(written_out, return_tensors="pt", add_special_tokens=False).input_ids


def load_press(folder: Path):
    """The press of an exported folder."""
    (file,) = folder.glob("kvatlas_press*.json")
    script = {"__name__": "load_press"}
    exec(compile((folder / "load_press.py").read_text(encoding="utf-8"), "load_press.py", "exec"), script)
    return script["load_press"](file)


def prefilled(model, ids: torch.Tensor, press=None) -> DynamicCache:
    """The cache after the prompt, cut by the press where there is one."""
    cache = DynamicCache()
    with torch.no_grad():
        if press is None:
            model(ids, past_key_values=cache)
        else:
            with press(model):
                model(ids, past_key_values=cache)
    return cache


def places_among(held: torch.Tensor, all_rows: torch.Tensor) -> list[int]:
    """Which of all rows each held one is. No two rows may be equal."""
    places = {row.numpy().tobytes(): place for place, row in enumerate(all_rows)}
    assert len(places) == len(all_rows), "two equal keys"
    found = [places[row.numpy().tobytes()] for row in held]
    assert len(set(found)) == len(found), "a key that is held twice"
    return found


def rows_of(cut, full) -> list:
    """[KV head] which rows of the full cache's layer a cut one holds."""
    found = []
    for head, keys in enumerate(cut.keys[0]):
        rows = places_among(keys, full.keys[0, head])
        assert torch.equal(cut.values[0, head], full.values[0, head][rows]), "a key with another token's value"
        found.append(sorted(rows))
    return found


def unmasked(model, length: int) -> list:
    """[layer][KV head] the positions of the prompt that a press has not masked."""
    kept = []
    for layer in model.model.layers:
        _, heads, positions = layer.self_attn.masked_key_indices
        gone = [set(positions[heads == head].tolist()) for head in range(model.config.num_key_value_heads)]
        kept.append([[i for i in range(length) if i not in of_head] for of_head in gone])
    return kept


def evaluated(model: Path, policies: list, ids: torch.Tensor, options=("--as", "kvpress", "--new", "2")) -> list:
    """What the program says of each policy, a document or its words, on the prompt; positions are [layer][KV head]."""
    prompts = Path(tempfile.mkdtemp(prefix="kvatlas-interop-")) / "prompts.jsonl"
    prompts.write_text(json.dumps({"id": "a", "tokens": ids[0].tolist()}), encoding="utf-8")
    words = ["evaluate", "--model", model, "--prompts", prompts, *options]
    for policy in policies:
        words += ["--policy", policy if isinstance(policy, str) else written(policy)]
    words += ["--ignore-eos", "--no-comparison", "--time-steps", "0"]
    lines = map(json.loads, run(*words, "--json", "--generations", "--positions").splitlines())
    told = [line for line in lines if line["policy"] != "full"]
    assert len(told) == len(policies)
    for line in told:
        for name in {"positions", "end_positions"} & set(line):
            line[name] = [
                [[i for begin, end in ranges for i in range(begin, end)] for ranges in heads] for heads in line[name]
            ]
    return told
