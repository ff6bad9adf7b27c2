# SPDX-License-Identifier: Apache-2.0
"""What gguf and torch make of rows of numbers in q8_0, q4_0 and fp8 (E4M3): python make_kv_formats.py OUT.json

The numbers are whole multiples of a power of two, so that the JSON holds them exactly.
"""

import json, sys
import gguf, numpy as np, torch

rng = np.random.default_rng(7)
rows = rng.integers(-4096, 4097, (12, 32)).astype(np.float32) / 512
rows[3] *= 64          # beyond 448, which fp8 cuts to that
rows[4] /= 4096        # below the smallest normal number of fp8
rows[5] = 0
rows[6, 1:] = 0
rows[7] = np.arange(32) / 8  # ties
rows[8] = -rows[7]
out = {"rows": rows.tolist(), "fp8": torch.tensor(rows).clamp(-448, 448).to(torch.float8_e4m3fn).float().tolist()}
for name in ("Q8_0", "Q4_0"):
    kind = gguf.GGMLQuantizationType[name]
    out[name.lower()] = gguf.quants.dequantize(gguf.quants.quantize(rows, kind), kind).tolist()
json.dump(out, open(sys.argv[1], "w"), separators=(",", ":"))
