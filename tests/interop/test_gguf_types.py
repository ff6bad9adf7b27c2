# SPDX-License-Identifier: Apache-2.0
"""Random blocks of GGUF's types of code words decode to the very bits of gguf's own dequantize: a model whose matrices
are of such blocks gives the logits, to the last digit, of one that holds what gguf makes of them."""

import json
import tempfile
import unittest
from pathlib import Path

import gguf
import numpy
import support

TYPES = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0")
WIDTH, HEADS, VOCABULARY = 256, 4, 48


def random_blocks(kind: gguf.GGMLQuantizationType, rows: int, columns: int, random) -> numpy.ndarray:
    """Any bits, but for the exponents of the blocks' scales, which leave the weights near 1."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * columns // values, size), dtype=numpy.uint8)
    largest = {"IQ2": 160, "IQ3": 480, "IQ1": 17}.get(kind.name[:3], 1)
    scale = (random.uniform(0.3, 1.0, len(blocks)) / largest).astype(numpy.float16).view(numpy.uint16)
    if kind.name == "IQ1_M":
        for i in range(4):  # the scale's bits lie in the upper halves of four bytes
            blocks[:, 49 + 2 * i] = (blocks[:, 49 + 2 * i] & 15) | ((scale >> 4 * i & 15) << 4).astype(numpy.uint8)
    else:
        at = size - 2 if kind.name.startswith("TQ") else 0
        blocks[:, at : at + 2] = scale.view(numpy.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def write_model(path: Path, matrices: dict, kind) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(name + ".weight", numpy.ones(WIDTH, numpy.float32))
    for name, matrix in matrices.items():
        writer.add_tensor(name + ".weight", matrix, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Types(unittest.TestCase):
    def answer(self, model: Path, prompts: Path) -> dict:
        out = support.run("generate", "--model", model, "--prompts", prompts, "--new", "2", "--ignore-eos", "--json")
        return json.loads(out.splitlines()[0])["top"]

    def test_types(self):
        folder = Path(tempfile.mkdtemp(prefix="kvatlas-interop-"))
        prompts = folder / "prompt.jsonl"
        prompts.write_text(json.dumps({"tokens": [7, 1, 40, 22, 3, 3, 19]}) + "\n", encoding="utf-8")
        shapes = {"token_embd": (VOCABULARY, WIDTH), "output": (VOCABULARY, WIDTH)}
        shapes |= {f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        shapes |= {f"blk.0.ffn_{name}": (2 * WIDTH, WIDTH) for name in ("gate", "up")}
        shapes["blk.0.ffn_down"] = (WIDTH, 2 * WIDTH)
        for name in TYPES:
            with self.subTest(name):
                kind = gguf.GGMLQuantizationType[name]
                random = numpy.random.default_rng(len(name))
                stored = {of: random_blocks(kind, *shape, random) for of, shape in shapes.items()}
                write_model(folder / f"{name}.gguf", stored, kind)
                decoded = {of: gguf.quants.dequantize(blocks, kind) for of, blocks in stored.items()}
                for of, values in decoded.items():
                    self.assertEqual(values.shape, shapes[of])
                    self.assertTrue(numpy.isfinite(values).all())
                write_model(folder / f"{name}-plain.gguf", decoded, gguf.GGMLQuantizationType.F32)
                self.assertEqual(self.answer(folder / f"{name}.gguf", prompts), self.answer(folder / f"{name}-plain.gguf", prompts))


if __name__ == "__main__":
    unittest.main()
