// SPDX-License-Identifier: Apache-2.0
#include "base/plain_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace kvatlas {

std::string fixed_text(double value, int digits) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
  char text[400];  // the longest double has 309 digits before its point
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits);
  return {text, end.ptr};
}

std::string percent_text(double share) {
  return std::isnan(share) ? "-" : fixed_text(100 * share, 1) + " %";
}

std::string ranges_text(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i) text += '-' + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text.empty() ? "none" : text;
}

std::vector<std::string> wrapped_lines(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;)
    if (!lines.empty() && lines.back().size() + 1 + word.size() <= width)
      lines.back() += ' ' + word;
    else
      lines.push_back(word);
  return lines;
}

std::string row_text(const std::vector<ColumnCell>& cells, std::size_t indent) {
  std::vector<std::vector<std::string>> columns;
  std::size_t height = 1;
  for (const auto& cell : cells) {
    columns.push_back(wrapped_lines(cell.text, cell.width));
    height = std::max(height, columns.back().size());
  }
  std::string out;
  for (std::size_t i = 0; i < height; ++i) {
    std::string line(indent, ' ');
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string text = i < columns[c].size() ? columns[c][i] : "";
      const std::size_t space = cells[c].width > text.size() ? cells[c].width - text.size() : 0;
      line += text + std::string(space + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace kvatlas
