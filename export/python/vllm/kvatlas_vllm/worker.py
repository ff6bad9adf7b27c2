# SPDX-License-Identifier: Apache-2.0
"""The configuration file names this class as an extension of vLLM's workers. Where the wheel is not installed, or
VLLM_PLUGINS leaves it out, vLLM ends at start instead of serving the full cache."""

from . import plugin
from .settings import PolicyError


class KvatlasPolicy:
    pass


if not plugin.registered:
    raise PolicyError("vLLM has not loaded the plugin kvatlas: name it in VLLM_PLUGINS, or unset that")
