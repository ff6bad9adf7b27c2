# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of Llama 3.1 8B's shapes with random weights in bfloat16, of all its layers (16 GB in four shards) or fewer."""
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from model_shapes import CONFIGS, tensors, values  # noqa: E402

CONFIG = CONFIGS["Llama 3.1 8B"]
SHARDS = 4


def noise(count):
    """`count` random bfloat16 values of either sign between 1/128 and 1/32."""
    sign_and_exponent = bytes(0x3C | (byte & 1) << 7 for byte in range(256))
    block = bytearray(2 * count)
    block[0::2] = random.randbytes(count)
    block[1::2] = random.randbytes(count).translate(sign_and_exponent)
    return block


def write_checkpoint(folder, layers=CONFIG["num_hidden_layers"]):
    """Of so many layers; the folder must be there."""
    config = {**CONFIG, "num_hidden_layers": layers}
    random.seed(8)
    block = memoryview(noise(1 << 24))
    one = b"\x80\x3f"
    everything = list(tensors(config))
    share = sum(values(shape) for _, shape in everything) / SHARDS
    shards, filled = [[]], 0
    for name, shape in everything:
        if filled > share * len(shards):
            shards.append([])
        shards[-1].append((name, shape))
        filled += values(shape)
    where = {}
    for number, members in enumerate(shards, 1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        print(f"writing {file_name}", file=sys.stderr)
        header, at = {}, 0
        for name, shape in members:
            where[name] = file_name
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * values(shape)]}
            at += 2 * values(shape)
        text = json.dumps(header).encode()
        with open(folder / file_name, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for _, shape in members:
                left = 2 * values(shape)
                if len(shape) == 1:
                    out.write(one * shape[0])
                    continue
                start = 2 * random.randrange(len(block) // 4)
                while left:
                    piece = block[start:start + left]
                    out.write(piece)
                    left -= len(piece)
                    start = 0
    index = {"metadata": {"total_size": 2 * filled}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config, indent=1))  # last: without it the folder is no model
