// SPDX-License-Identifier: Apache-2.0
// What the metrics need to know of Unicode's characters. It is the same on every machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvatlas::data {

/// The characters of a UTF-8 text. Each byte that is part of none becomes U+FFFD.
std::u32string characters(std::string_view text);

/// The small letter of a capital of the Latin, Greek or Cyrillic script (the full-width Latin
/// letters included); any other character as it is.
char32_t small_letter(char32_t c);
std::u32string in_small_letters(std::u32string text);

bool is_blank(char32_t c);
/// Whether it is a digit from 0 to 9, or the full-width form of one.
bool is_digit(char32_t c);
/// Whether it can be part of a word: a letter, a digit, "_" or an ideograph. Beyond ASCII these are
/// all characters outside the blocks of punctuation, symbols and combining marks.
bool is_word_character(char32_t c);

bool is_ascii_punctuation(char32_t c);
/// Whether it is punctuation of ASCII, or a mark that Chinese text uses.
bool is_punctuation(char32_t c);

/// The texts between blanks, none of them empty.
std::vector<std::u32string_view> split_at_blanks(std::u32string_view text);

}  // namespace kvatlas::data
