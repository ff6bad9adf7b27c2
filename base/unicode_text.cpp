// SPDX-License-Identifier: Apache-2.0
#include "base/unicode_text.hpp"

#include <algorithm>
#include <utf8proc.h>

namespace kvatlas {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Lead {
  std::uint8_t length;  // 0: no byte that begins a character
  unsigned char second_low, second_high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) {
    return {3, static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte < 0xF5) {
    return {4, static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

/// How many bytes from `at` are a character or the beginning of one.
std::size_t good_bytes(std::string_view text, std::size_t at, const Lead& lead) {
  std::size_t count = 1;
  while (count < lead.length && at + count < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at + count]);
    const auto low = count == 1 ? lead.second_low : 0x80;
    const auto high = count == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) break;
    ++count;
  }
  return count;
}

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

}  // namespace

Utf8Char read_utf8(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {0xFFFD, 1, false};
  const std::size_t count = good_bytes(text, at, lead);
  if (count < lead.length) return {0xFFFD, static_cast<std::uint8_t>(count), false};
  char32_t code = first & (0x7Fu >> lead.length);
  for (std::size_t k = 1; k < count; ++k) {
    code = (code << 6) | (static_cast<unsigned char>(text[at + k]) & 0x3Fu);
  }
  return {code, lead.length, true};
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) {
    out += static_cast<char>(static_cast<unsigned char>(byte));
  };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    if (!c.valid) return false;
    at += c.length;
  }
  return true;
}

std::string repaired_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    out += c.valid ? text.substr(at, c.length) : kReplacement;
    at += c.length;
  }
  return out;
}

std::size_t unfinished_utf8(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t at = text.size() - back;
    const Lead lead = lead_of(static_cast<unsigned char>(text[at]));
    if (lead.length > back && good_bytes(text, at, lead) == back) return back;
  }
  return 0;
}

bool is_space(char32_t code) {
  return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_number(char32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t code) {
  const auto c = category(code);
  const bool circled_letter = code >= 0x24B6 && code <= 0x24E9;  // alphabetic, though symbols
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) || is_mark(code) ||
         c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_PC ||
         code == 0x200C || code == 0x200D || circled_letter;
}

}  // namespace kvatlas
