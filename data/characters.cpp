// SPDX-License-Identifier: Apache-2.0
#include "data/characters.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/unicode_text.hpp"

namespace kvatlas::data {
namespace {

struct Range {
  char32_t first, last;
};

// Beyond ASCII, by blocks: most of the characters there that Unicode calls no letter and no number.
constexpr std::array<Range, 29> kNoWords = {
    {{0x80, 0xa9},     {0xab, 0xb1},       {0xb4, 0xb4},       {0xb6, 0xb8},       {0xbb, 0xbb},
     {0xbf, 0xbf},     {0xd7, 0xd7},       {0xf7, 0xf7},       {0x300, 0x36f},     {0x1680, 0x1680},
     {0x2000, 0x206f}, {0x20a0, 0x20ff},   {0x2190, 0x245f},   {0x2500, 0x2775},   {0x2794, 0x2bff},
     {0x2e00, 0x2e7f}, {0x3000, 0x3004},   {0x3008, 0x3020},   {0x302a, 0x3030},   {0xd800, 0xf8ff},
     {0xfe00, 0xfe6f}, {0xff01, 0xff0f},   {0xff1a, 0xff20},   {0xff3b, 0xff40},   {0xff5b, 0xff65},
     {0xfff0, 0xffff}, {0x1f000, 0x1faff}, {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff}}};

// The marks that LongBench takes out of Chinese text.
constexpr std::u32string_view kChinesePunctuation =
    U"！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔"
    U"〕〖〗"
    U"〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏";

}  // namespace

std::u32string characters(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    out.append(c.valid ? 1 : c.length, c.code);
    at += c.length;
  }
  return out;
}

char32_t small_letter(char32_t c) {
  const auto within = [&](char32_t first, char32_t last) { return c >= first && c <= last; };
  if (c < 0x80) return within('A', 'Z') ? c + 32 : c;
  if (within(0xc0, 0xde)) return c == 0xd7 ? c : c + 32;
  if (c == 0x130) return 'i';
  // Pairs of a capital and its small letter: the capital is the even one, or the odd one.
  if (within(0x100, 0x12f) || within(0x132, 0x137) || within(0x14a, 0x177) ||
      within(0x1e00, 0x1e95) || within(0x1ea0, 0x1eff) || within(0x460, 0x481) ||
      within(0x48a, 0x4bf) || within(0x4d0, 0x52f))
    return c | 1;
  if (within(0x139, 0x148) || within(0x179, 0x17e)) return c + (c & 1);
  if (c == 0x178) return 0xff;
  if (within(0x388, 0x38a)) return c + 37;
  if (c == 0x386) return 0x3ac;
  if (c == 0x38c) return 0x3cc;
  if (within(0x38e, 0x38f)) return c + 63;
  if (within(0x391, 0x3ab) && c != 0x3a2) return c + 32;
  if (within(0x400, 0x40f)) return c + 80;
  if (within(0x410, 0x42f)) return c + 32;
  if (within(0xff21, 0xff3a)) return c + 32;
  return c;
}

std::u32string in_small_letters(std::u32string text) {
  std::transform(text.begin(), text.end(), text.begin(), small_letter);
  return text;
}

bool is_blank(char32_t c) { return (c >= 0x1c && c <= 0x1f) || is_space(c); }

bool is_digit(char32_t c) { return (c >= '0' && c <= '9') || (c >= 0xff10 && c <= 0xff19); }

bool is_word_character(char32_t c) {
  if (c < 0x80)
    return is_digit(c) || (small_letter(c) >= 'a' && small_letter(c) <= 'z') || c == '_';
  return std::none_of(kNoWords.begin(), kNoWords.end(),
                      [&](const Range& range) { return c >= range.first && c <= range.last; });
}

bool is_ascii_punctuation(char32_t c) {
  return c > ' ' && c < 0x7f && (c == '_' || !is_word_character(c));
}

bool is_punctuation(char32_t c) {
  return is_ascii_punctuation(c) || kChinesePunctuation.find(c) != kChinesePunctuation.npos;
}

std::vector<std::u32string_view> split_at_blanks(std::u32string_view text) {
  std::vector<std::u32string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const auto* begin = std::find_if_not(text.data() + at, text.data() + text.size(), is_blank);
    const auto* end = std::find_if(begin, text.data() + text.size(), is_blank);
    if (begin != end) words.emplace_back(begin, static_cast<std::size_t>(end - begin));
    at = static_cast<std::size_t>(end - text.data());
  }
  return words;
}

}  // namespace kvatlas::data
