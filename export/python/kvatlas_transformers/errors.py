# SPDX-License-Identifier: Apache-2.0
"""What this package raises."""


class PolicyError(ValueError):
    """A policy that cannot be read, or cannot be run on this model or input. The message says which thing, what was
    found and what was expected."""
