// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>

namespace kvatlas {

/// The parts written one after the other, as a stream would write them.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// "[4, 8]" for a range of numbers.
template <class Range>
std::string list_str(const Range& values) {
  std::ostringstream out;
  out << '[';
  const char* separator = "";
  for (const auto& value : values) {
    out << separator << value;
    separator = ", ";
  }
  out << ']';
  return out.str();
}

/// The text with '?' in place of each control character, also of those that take two bytes in UTF-8
/// (U+0080 to U+009F). The characters in `kept` stay.
inline std::string without_controls(std::string_view text, std::string_view kept = "") {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool of_two = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    const bool of_one = (byte < 0x20 || byte == 0x7f) && kept.find(text[i]) == kept.npos;
    out += of_one || of_two ? '?' : text[i];
    if (of_two) ++i;
  }
  return out;
}

/// Text from outside the program, made safe for a message: without control characters, and cut off
/// with "..." if it is long.
inline std::string printable(std::string_view text, std::size_t most = 80) {
  if (text.size() <= most) return without_controls(text);
  // Not inside a character, whose first byte at most three others follow.
  std::size_t end = most;
  for (int back = 0; back < 3 && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80;
       ++back)
    --end;
  return without_controls(text.substr(0, end)) + "...";
}

/// The printable text in single quotes.
inline std::string quoted(std::string_view text, std::size_t most = 80) {
  return "'" + printable(text, most) + "'";
}
// Exact matches for strings: without them std::quoted, which <filesystem> declares, would be taken.
inline std::string quoted(const std::string& text, std::size_t most = 80) {
  return quoted(std::string_view(text), most);
}
inline std::string quoted(std::string& text, std::size_t most = 80) {
  return quoted(std::string_view(text), most);
}
inline std::string quoted(const char* text, std::size_t most = 80) {
  return quoted(std::string_view(text), most);
}

}  // namespace kvatlas
