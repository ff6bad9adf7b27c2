// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <span>
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

/// The `most` first of n positions by score, the largest first, of equal ones the earlier first.
std::vector<std::int32_t> by_score(const float* scores, std::int64_t n, std::int64_t most);

/// What a selection keeps of n tokens, ascending: the `best` first of the order that lie before
/// `begin`, and everything from there on.
std::vector<std::int64_t> best_and_rest(std::span<const std::int32_t> order, std::int64_t best,
                                        std::int64_t begin, std::int64_t n);

/// How many tokens of H2O's budget go to those with most attention, if nothing else is said; the
/// rest of it goes to the last tokens.
constexpr std::int64_t h2o_heavy(std::int64_t budget) { return budget / 2; }
/// The first of H2O's last tokens.
constexpr std::int64_t h2o_recent(std::int64_t n, std::int64_t budget, std::int64_t heavy) {
  return std::max<std::int64_t>(0, n - (budget - heavy));
}

}  // namespace kvatlas::kernels
