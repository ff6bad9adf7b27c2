// SPDX-License-Identifier: Apache-2.0
#include "base/plain_text.hpp"

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

}  // namespace kvatlas
