// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/text_diff.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvatlas::viewer {

namespace {

constexpr std::size_t kMostLines = 2000;

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::string line_diff(std::string_view before, std::string_view after) {
  if (before == after) return "";
  const auto a = lines_of(before), b = lines_of(after);
  std::string out;
  const auto add = [&](const char* mark, std::string_view line) {
    ((out += mark) += line) += '\n';
  };
  if (a.size() > kMostLines || b.size() > kMostLines) {
    for (const auto line : a) add("- ", line);
    for (const auto line : b) add("+ ", line);
    return out;
  }
  // common[i][j]: the most lines that a from i on and b from j on share in order.
  const std::size_t columns = b.size() + 1;
  std::vector<std::uint16_t> common((a.size() + 1) * columns, 0);
  for (std::size_t i = a.size(); i-- > 0;)
    for (std::size_t j = b.size(); j-- > 0;)
      common[i * columns + j] =
          a[i] == b[j] ? static_cast<std::uint16_t>(common[(i + 1) * columns + j + 1] + 1)
                       : std::max(common[(i + 1) * columns + j], common[i * columns + j + 1]);
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      add("  ", a[i]);
      ++i, ++j;
    } else if (j == b.size() ||
               (i < a.size() && common[(i + 1) * columns + j] >= common[i * columns + j + 1])) {
      add("- ", a[i++]);
    } else {
      add("+ ", b[j++]);
    }
  }
  return out;
}

}  // namespace kvatlas::viewer
