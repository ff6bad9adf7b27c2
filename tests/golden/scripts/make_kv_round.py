# SPDX-License-Identifier: Apache-2.0
"""What engines' own code makes of keys and values in their number formats: python make_kv_round.py formats.npz OUT.h5

formats.npz was made by the code of vLLM 0.33.0 (its Triton kernels in Triton's interpreter, its compiled kernel for CPUs,
its torch references) and of ggml. This picks, for each row format of kernels/kv_round.hpp, what is read back. E5M2 to the
nearest is torch's conversion.
"""

import sys
import h5py, numpy as np, torch

source, SCALES = np.load(sys.argv[1]), {"k": np.float32(0.0371), "v": np.float32(0.0113)}
FORMATS = {
    "e4m3": ("fp8_scaled", "kv"), "e4m3_cut": ("cpu_fp8_e4m3", "kv"), "e5m2": (None, "kv"), "e5m2_cut": ("cpu_fp8_e5m2", "kv"),
    "int8_row": ("int8_per_token_head", "kv"), "e4m3_row": ("fp8_per_token_head", "kv"), "int4_row": ("int4_per_token_head", "kv"),
    "range4_row": ("turboquant_4bit_nc", "v"), "range3_row": ("turboquant_3bit_nc", "v"),
    "lloyd4_row": ("turboquant_4bit_nc", "k"), "lloyd3_row": ("turboquant_3bit_nc", "k"), "nvfp4": ("nvfp4", "kv"),
    **{word: (word, "kv") for word in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")}}
with h5py.File(sys.argv[2], "w", libver=("earliest", "v108")) as out:
    def put(name, array):
        array = np.asarray(array)
        out.create_dataset(name, data=array, **({"compression": 9, "shuffle": True} if array.size > 64 else {}))
    for dim in (64, 128):
        for side in "kv":
            put(f"rows/d{dim}/{side}", source[f"input/d{dim}/{side}"])
        for word, (name, sides) in FORMATS.items():
            for side in sides:
                x, scale = source[f"input/d{dim}/{side}"], np.float32(1)
                if word.startswith("e"):
                    scale = np.float32(1) if word == "e4m3_row" else SCALES[side]
                if word == "nvfp4":
                    scale = source[f"nvfp4/d{dim}/{side}_global_scale"]
                if name is None:
                    y = (torch.tensor(x) / torch.tensor(scale)).clamp(-57344, 57344).to(torch.float8_e5m2).float() * torch.tensor(scale)
                    back = y.numpy()
                else:
                    back = source[f"{name}/d{dim}/{side}_f32"]
                put(f"{word}/d{dim}/{side}", back.reshape(x.shape))
                put(f"{word}/d{dim}/{side}_scale", scale)
        for bits, name in ((4, "turboquant_4bit_nc"), (3, "turboquant_3bit_nc")):
            put(f"codes/lloyd{bits}_row/d{dim}", source[f"{name}/d{dim}/k_codes"])
    for dim in (32, 64, 128, 256):
        for bits in (3, 4):
            put(f"levels/d{dim}/{bits}", source[f"lloyd_max/d{dim}/{bits}bit"])
