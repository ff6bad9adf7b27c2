// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvatlas::viewer {

/// A rectangle of a map's values, which belong to somebody else. NaN is a value that is not known.
struct Cells {
  std::span<const float> values;  // [rows, columns], row-major
  std::int64_t rows = 0, columns = 0;
  std::int64_t first_row = 0, first_column = 0;  // place of its first cell in the map
  bool causal = true;                            // cells right of the map's diagonal hold nothing

  float at(std::int64_t row, std::int64_t column) const { return values[row * columns + column]; }
  bool is_masked(std::int64_t row, std::int64_t column) const {
    return causal && first_column + column > first_row + row;
  }
};

}  // namespace kvatlas::viewer
