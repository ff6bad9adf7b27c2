// SPDX-License-Identifier: Apache-2.0
// Just as much of Unicode as the metrics need, the same on every machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvatlas::data {

/// The characters of a UTF-8 text. Each byte that is no part of one becomes U+FFFD.
std::u32string characters(std::string_view text);

/// The small letter of a capital of the Latin, Greek or Cyrillic script (the full-width Latin
/// letters included); any other character as it is.
char32_t small_letter(char32_t c);
std::u32string in_small_letters(std::u32string text);

bool is_blank(char32_t c);
/// One of 0 to 9, or of their full-width forms.
bool is_digit(char32_t c);
/// Can it be part of a word: is it a letter, a digit, "_" or an ideograph? Of the characters beyond
/// ASCII the blocks of punctuation, symbols and combining marks are not.
bool is_word_character(char32_t c);

bool is_ascii_punctuation(char32_t c);
/// Of ASCII, or a mark that Chinese text uses.
bool is_punctuation(char32_t c);

/// The texts between blanks, none of them empty.
std::vector<std::u32string_view> split_at_blanks(std::u32string_view text);

}  // namespace kvatlas::data
