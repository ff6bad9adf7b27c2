// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

namespace kvatlas::kernels {

/// An integer that orders as the floats do: NaN lowest, -0 and 0 the same.
constexpr std::uint32_t rank_key(float value) {
  if (value != value) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Calls take(j) for the `k` largest of `n` values `stride` apart, in ascending j; of equal ones
/// the earlier.
template <class Take>
void select_largest(const float* values, std::int64_t stride, std::int64_t n, std::int64_t k,
                    Take&& take) {
  if (k <= 0) return;
  std::vector<std::uint32_t> keys(static_cast<std::size_t>(n));
  for (std::int64_t j = 0; j < n; ++j) keys[j] = rank_key(values[j * stride]);
  auto ranked = keys;
  std::nth_element(ranked.begin(), ranked.begin() + (k - 1), ranked.end(), std::greater<>());
  const std::uint32_t threshold = ranked[k - 1];
  std::int64_t ties_left = k - std::count_if(ranked.begin(), ranked.begin() + k,
                                             [&](std::uint32_t key) { return key > threshold; });
  for (std::int64_t j = 0; j < n; ++j) {
    const std::uint32_t key = keys[j];
    if (key > threshold || (key == threshold && ties_left-- > 0)) take(j);
  }
}

}  // namespace kvatlas::kernels
