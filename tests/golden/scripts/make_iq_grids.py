# SPDX-License-Identifier: Apache-2.0
"""Writes analyzer/checkpoint/iq_grids_impl.hpp: the code books of GGUF's IQ formats.

python make_iq_grids.py OUT

The facts are those of the Python package gguf 0.19 (gguf.quants), where each book is an array [codes, values]. A code
book is a set of short tuples of a few possible values. Read as a number whose first digit is the lowest, the tuples stand
in ascending order, so that the gap from each to the next says all: a character from '0' on for 1 to 78, and '~' for 78
more that go on with the next character.
"""

import sys
from pathlib import Path

from gguf import quants

WIDTH, MOST, GO_ON = 88, 78, "~"

HEAD = """// SPDX-License-Identifier: Apache-2.0
// Written by tests/golden/scripts/make_iq_grids.py, which says how to read it.
#pragma once

namespace kvatlas::model {

// clang-format off
"""
TAIL = """// clang-format on

}  // namespace kvatlas::model
"""


def gaps(kind) -> str:
    kind.init_grid()
    base, out, before = len(kind.grid_map), "", -1
    for values in kind.grid.reshape(kind.grid_shape):
        number = sum(kind.grid_map.index(value) * base**place for place, value in enumerate(values))
        more, rest = divmod(number - before - 1, MOST)
        assert number > before
        out += GO_ON * more + chr(ord("0") + rest)
        before = number
    return out


text = HEAD
for name in ("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"):
    line = gaps(getattr(quants, name))
    pieces = [f'    R"({line[i : i + WIDTH]})"' for i in range(0, len(line), WIDTH)]
    text += f"inline constexpr char k{name.replace('_', '')}Gaps[] =\n" + "\n".join(pieces) + ";\n"
Path(sys.argv[1]).write_text(text + TAIL)
