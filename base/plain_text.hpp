// SPDX-License-Identifier: Apache-2.0
// How lists and numbers are written for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace kvatlas {

/// The parts one after the other, with the separator between them: "a, b". `word_of` gives what is
/// written of a part, if that is not the part itself: a member, or a function.
template <class Parts, class WordOf = std::identity>
std::string join(const Parts& parts, std::string_view separator = ", ", WordOf word_of = {}) {
  std::ostringstream out;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) out << separator;
    out << std::invoke(word_of, part);
    first = false;
  }
  return out.str();
}

/// A number with so many digits after its point; "-" for NaN, "infinite" or "-infinite".
std::string fixed_text(double value, int digits);
/// "37.5 %" for 0.375; "-" for NaN.
std::string percent_text(double share);

/// "0-3, 7" of ascending numbers; "none".
std::string ranges_text(const std::vector<std::int64_t>& numbers);

/// The words of the text in lines of at most `width` characters. A longer word is a line by itself.
std::vector<std::string> wrapped_lines(const std::string& text, std::size_t width);

/// A text in a column of a table.
struct ColumnCell {
  std::string text;
  std::size_t width = 0;
};
/// A row of a table, behind `indent` spaces: texts that are longer than their columns go on below
/// themselves. Between two columns are two spaces. A word that is longer than its column stays
/// whole.
std::string row_text(const std::vector<ColumnCell>& cells, std::size_t indent = 0);

}  // namespace kvatlas
