# SPDX-License-Identifier: Apache-2.0
"""The bytes that a token stands for, which may end inside a character."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@functools.cache
def _bytes_of_letters() -> dict[str, int]:
    """The letters that byte-level tokenizers write bytes as: printable bytes are themselves, the others follow 255."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _decoder(tokenizer: Any) -> str:
    """byte-level, sentencepiece, or neither."""
    if (kind := getattr(tokenizer, "_kvatlas_decoder", None)) is None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        said = json.dumps(json.loads(backend.to_str()).get("decoder")) if backend is not None else ""
        kind = "byte-level" if "ByteLevel" in said else "sentencepiece" if "ByteFallback" in said or "\\u2581" in said else ""
        tokenizer._kvatlas_decoder = kind
    return kind


def token_bytes(tokenizer: Any, token: int) -> bytes:
    text = tokenizer.convert_ids_to_tokens(token)
    if text is None:
        return b""
    kind = _decoder(tokenizer)
    added = token in tokenizer.added_tokens_decoder
    if added:
        return text.encode()
    if kind == "byte-level":
        letters = _bytes_of_letters()
        return bytes(letters[letter] for letter in text) if all(letter in letters for letter in text) else text.encode()
    if kind == "sentencepiece":
        if byte := _BYTE.fullmatch(text):
            return bytes([int(byte[1], 16)])
        return text.replace("\u2581", " ").encode()
    return tokenizer.decode([token]).encode()
