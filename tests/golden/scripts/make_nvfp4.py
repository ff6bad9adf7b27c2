# SPDX-License-Identifier: Apache-2.0
"""What compressed-tensors makes of weights in NVFP4, its own and Model Optimizer's: python make_nvfp4.py OUT.safetensors

All 16 codes meet all finite scales of E4M3, and global scales that are no powers of two.
"""

import sys

import torch
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.quantization import QuantizationScheme
from compressed_tensors.quantization.quant_scheme import NVFP4A16
from safetensors.torch import save_file

torch.manual_seed(5)
rows, columns = 32, 128
scheme = QuantizationScheme(targets=["Linear"], **NVFP4A16)
out = {}


def e2m1(codes: torch.Tensor) -> torch.Tensor:
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    return values[codes & 7] * torch.where(codes & 8 != 0, -1.0, 1.0)


# As compressed-tensors packs a matrix, and as it decodes it.
weight = torch.randn(rows, columns) * torch.logspace(-4, 2, rows)[:, None]
global_scale = (448 * 6 / weight.abs().amax()).reshape(1)
scale = (weight.view(rows, -1, 16).abs().amax(-1) / 6 * global_scale).to(torch.float8_e4m3fn).float()
state = {"weight": weight, "weight_scale": scale, "weight_global_scale": global_scale}
packed = NVFP4PackedCompressor.compress(state, scheme)
for name in ("weight_packed", "weight_scale", "weight_global_scale"):
    out[f"packed.{name}"] = packed[name]
out["packed.decoded"] = NVFP4PackedCompressor.decompress(packed, scheme)["weight"]

# Any codes under any scales.
codes = torch.arange(rows * columns // 2).to(torch.int64) * 37 % 256
scales = torch.arange(rows * columns // 16) % 254
scales[scales > 126] += 1  # 127 and 255 are no numbers
any_state = {
    "weight_packed": codes.to(torch.uint8).view(rows, columns // 2),
    "weight_scale": scales.to(torch.uint8).view(rows, columns // 16).view(torch.float8_e4m3fn),
    "weight_global_scale": torch.tensor([3.3]),
}
out |= {f"any.{name}": tensor for name, tensor in any_state.items()}
out["any.decoded"] = NVFP4PackedCompressor.decompress(any_state, scheme)["weight"]

# Model Optimizer's names; its scale of all is a factor. As modelopt 0.47 does it (NVFP4QTensor.dequantize), in float32.
factor = torch.tensor(0.00071)
pairs = torch.stack((any_state["weight_packed"] & 15, any_state["weight_packed"] >> 4), -1).view(rows, columns).long()
decoded = e2m1(pairs).view(rows, -1, 16) * (any_state["weight_scale"].float() * factor)[..., None]
out |= {"modelopt.weight": any_state["weight_packed"].clone(), "modelopt.weight_scale": any_state["weight_scale"].clone()}
out |= {"modelopt.weight_scale_2": factor, "modelopt.decoded": decoded.view(rows, columns).bfloat16()}
save_file({name: tensor.detach().contiguous() for name, tensor in out.items()}, sys.argv[1])
