// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>

#include <CLI/CLI.hpp>

namespace kvatlas {

/// The check of an option that takes a real number from `low` to `high`, both included. CLI11's own
/// check lets NaN pass, because NaN is neither below `low` nor above `high`.
inline CLI::Validator real_range(double low, double high) {
  const CLI::Range range(low, high);
  return CLI::Validator(
      [range](std::string& text) {
        if (std::isnan(std::strtod(text.c_str(), nullptr)))
          return std::string("Value nan is no number");
        return range(text);
      },
      range.get_description());
}

}  // namespace kvatlas
