#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lines of prose are short enough for a terminal: prose_width.py [--wrap] [PAGE …]

Names each line of prose that is longer than WIDTH. Tables, code and headings are as wide as they must be. With --wrap
the paragraphs that have such lines are written anew, and nothing else is changed."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 120
ITEM = re.compile(r"^( *)([-*]|\d+\.) +")
# Pieces that no line is broken in: code, and the address of a link with what ends it.
PIECES = re.compile(r"(?:`[^`]*`|\]\([^)]*\)|[^\s`])+")


def pages():
    return [page for folder in (ROOT, ROOT / "docs") for page in sorted(folder.glob("*.md"))
            if page.name != "CHANGELOG.md"]


def paragraphs(lines):
    """(first, end, indent of the lines after the first) of every paragraph of prose; a list's item is one."""
    fenced, start, indent = False, None, ""
    for at, line in enumerate([*lines, ""]):
        item = ITEM.match(line)
        fence = line.lstrip().startswith("```")
        inside = start is not None and line.startswith(indent) and line.strip()
        other = fenced or fence or re.match(r"^(#|\||!\[|<)", line) or (line.startswith("    ") and not inside and not item)
        if start is not None and (item or other or not line.strip() or not inside):
            yield start, at, indent
            start = None
        if fence:
            fenced = not fenced
        elif start is None and line.strip() and not other:
            start, indent = at, " " * len(item.group(0)) if item else re.match(" *", line).group(0)


def wrapped(lines, indent):
    first = ITEM.match(lines[0])
    begin = first.group(0) if first else indent
    words = []
    for word in PIECES.findall(" ".join(line.strip() for line in [lines[0][len(begin):], *lines[1:]])):
        # A line that began with such a word would begin a list or a heading, so it stays with the word before it.
        if words and re.match(r"^([-*+]|\d+\.|#+|\|)$", word):
            words[-1] += " " + word
        else:
            words.append(word)
    out, line = [], begin + words[0]
    for word in words[1:]:
        if len(line) + 1 + len(word) > WIDTH:
            out.append(line)
            line = indent + word
        else:
            line += " " + word
    return [*out, line]


def main():
    wrap = "--wrap" in sys.argv
    wide = 0
    for page in [Path(name) for name in sys.argv[1:] if name != "--wrap"] or pages():
        lines = page.read_text().splitlines()
        for start, end, indent in reversed(list(paragraphs(lines))):
            long = [at for at in range(start, end) if len(lines[at]) > WIDTH]
            if wrap and long:
                lines[start:end] = wrapped(lines[start:end], indent)
                continue
            for at in long:
                print(f"{page}:{at + 1}: {len(lines[at])} characters")
            wide += len(long)
        if wrap:
            page.write_text("\n".join(lines) + "\n")
    sys.exit(f"{wide} lines of prose are longer than {WIDTH}" if wide else 0)


if __name__ == "__main__":
    main()
