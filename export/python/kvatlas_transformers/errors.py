# SPDX-License-Identifier: Apache-2.0
"""The exception that this package raises."""


class PolicyError(ValueError):
    """A policy that cannot be read, or cannot be run on this model or input. The message says where, what was
    found there and what was expected."""
