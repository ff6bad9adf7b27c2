# SPDX-License-Identifier: Apache-2.0
"""Lets vLLM serve a policy that kvatlas has calibrated. Nothing here is called by hand: vLLM finds the plugin by its
entry point, and `kvatlas export policy.json --to vllm` writes the configuration file that names the policy:

    vllm serve MODEL --config vllm.yaml
"""

from .settings import PolicyError, Settings

__version__ = "0.1.0"
__all__ = ["PolicyError", "Settings"]
