# SPDX-License-Identifier: Apache-2.0
"""What profiles and policies say of the model that they belong to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Model:
    """The shape of a model, and where a file says it, its name. `layers` counts those that have a KV cache."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    windows: np.ndarray  # [layer] tokens that a query sees; 0: all
    layer_numbers: np.ndarray  # [layer] which of the model's layers these are
    name: str = ""
    architecture: str = ""
    fingerprint: str = ""
