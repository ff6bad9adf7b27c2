// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvatlas {

/// The character that SentencePiece writes in place of a space: "▁" (U+2581).
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

/// One character read from UTF-8 text. Where the bytes are not UTF-8, `code` is U+FFFD, `valid` is
/// false and `length` covers what one replacement character stands for (the longest beginning of a
/// character, at least one byte), as Unicode recommends.
struct Utf8Char {
  char32_t code;
  std::uint8_t length;
  bool valid;
};
Utf8Char read_utf8(std::string_view text, std::size_t at);  // at < text.size()

void append_utf8(std::string& out, char32_t code);

bool is_utf8(std::string_view text);
/// The text, with U+FFFD in place of what is not UTF-8.
std::string repaired_utf8(std::string_view text);
/// How many bytes at the end of the text begin a character that is not whole yet: 0 to 3.
std::size_t unfinished_utf8(std::string_view text);

/// Character classes, as the Rust and Oniguruma patterns of tokenizer files mean them.
bool is_space(char32_t code);        // White_Space
bool is_number(char32_t code);       // \p{N}
bool is_punctuation(char32_t code);  // \p{P}
bool is_mark(char32_t code);         // \p{M}
bool is_word(char32_t code);         // \w: letters, marks, digits, connectors, joiners

}  // namespace kvatlas
