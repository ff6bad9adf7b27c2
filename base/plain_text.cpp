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

std::string table_text(const Table& table) {
  std::vector<std::size_t> widths;
  for (const auto& column : table.columns) widths.push_back(column.size());
  for (const auto& row : table.rows)
    for (std::size_t i = 0; i < widths.size() && i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  std::string text = table.title + '\n';
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      line += i == 0 ? "  " + row[i] + space : "  " + space + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  if (!table.columns.empty()) add(table.columns);
  for (const auto& row : table.rows) add(row);
  return text;
}

}  // namespace kvatlas
