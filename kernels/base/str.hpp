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

/// Foreign text made safe for a message: control bytes become '?', long text is cut with "...".
inline std::string printable(std::string_view text, std::size_t most = 80) {
  std::string out;
  for (char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < 0x20 || byte == 0x7f) ? '?' : c;
  }
  if (text.size() > most) out += "...";
  return out;
}

/// printable(), in single quotes.
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
