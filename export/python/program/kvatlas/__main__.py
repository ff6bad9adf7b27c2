# SPDX-License-Identifier: Apache-2.0
"""`python -m kvatlas` is `kvatlas`."""

from .launcher import main

main()
