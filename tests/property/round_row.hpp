// SPDX-License-Identifier: Apache-2.0
// What number formats that round each token by itself make of a row, number by number: the
// specification that the simulation is held against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/half.hpp"
#include "calibrate/policy/kv_format.hpp"

namespace kvatlas::calibrate {

inline float stored_scale(float scale) { return f16_to_float(float_to_f16(scale)); }

/// The nearest E4M3 number, ties to even, of a number of at most 448.
inline double nearest_e4m3(double x) {
  const double size = std::min(std::abs(x), 448.0);
  if (size == 0) return 0;
  const int exponent = std::max(-6, std::ilogb(size));
  const double step = std::ldexp(1.0, exponent - 3);
  return std::copysign(std::nearbyint(size / step) * step, x);
}

inline void round_block(std::vector<double>& row, std::size_t begin, std::size_t end,
                        KvFormat format) {
  double largest = 0;
  for (std::size_t i = begin; i < end; ++i)
    if (std::abs(row[i]) > std::abs(largest)) largest = row[i];
  const bool eight = format == KvFormat::q8_0;
  const float scale =
      eight ? std::abs(static_cast<float>(largest)) / 127.0f : static_cast<float>(largest) / -8.0f;
  const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
  for (std::size_t i = begin; i < end; ++i) {
    const auto x = static_cast<float>(row[i]);
    const float code =
        eight ? std::round(x * inverse)
              : static_cast<float>(std::clamp(
                    std::floor(static_cast<double>(x) * static_cast<double>(inverse) + 8.5), 0.0,
                    15.0)) -
                    8.0f;
    row[i] = static_cast<double>(code * stored_scale(scale));
  }
}

/// A row of fewer than 64 numbers, or of a number that 64 does not divide: others are rotated.
inline void round_row(std::vector<double>& row, KvFormat format) {
  if (format == KvFormat::fp8)
    for (double& x : row) x = nearest_e4m3(x);
  if (format == KvFormat::q8_0 || format == KvFormat::q4_0)
    for (std::size_t begin = 0; begin < row.size(); begin += 32)
      round_block(row, begin, std::min(begin + 32, row.size()), format);
}

}  // namespace kvatlas::calibrate
