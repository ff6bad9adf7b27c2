# SPDX-License-Identifier: Apache-2.0
"""Runs kvatlas' KV cache policies in Hugging Face transformers:

    policy = kvatlas_transformers.load("policy.json")
    model.generate(**inputs, past_key_values=policy.cache(model))
"""

from .document import load
from .errors import PolicyError
from .policy import Policy
from .press import PressScores

__version__ = "0.1.0"
__all__ = ["Policy", "PolicyError", "PressScores", "load"]
