# SPDX-License-Identifier: Apache-2.0
"""The exception that this package raises."""


class KvatlasError(Exception):
    """What went wrong, in one sentence that says what, where and what can be done: the program's own where it ran."""
