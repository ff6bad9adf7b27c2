// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.hpp"

#include <iterator>

namespace kvatlas::kernels {

std::vector<std::int32_t> by_score(const float* scores, std::int64_t n, std::int64_t most) {
  // A score's rank in the upper bits, and below it the position, of which the earlier is larger.
  std::vector<std::uint64_t> ranked(static_cast<std::size_t>(n));
  for (std::int64_t j = 0; j < n; ++j)
    ranked[j] = std::uint64_t{rank_key(scores[j])} << 32 | ~static_cast<std::uint32_t>(j);
  const auto end = ranked.begin() + std::clamp<std::int64_t>(most, 0, n);
  std::nth_element(ranked.begin(), end, ranked.end(), std::greater<>());
  std::sort(ranked.begin(), end, std::greater<>());
  std::vector<std::int32_t> order;
  std::transform(ranked.begin(), end, std::back_inserter(order), [](std::uint64_t key) {
    return static_cast<std::int32_t>(~static_cast<std::uint32_t>(key));
  });
  return order;
}

std::vector<std::int64_t> best_and_rest(std::span<const std::int32_t> order, std::int64_t best,
                                        std::int64_t begin, std::int64_t n) {
  std::vector<std::int64_t> kept;
  for (const auto position : order) {
    if (std::ssize(kept) >= best) break;
    if (position < begin) kept.push_back(position);
  }
  std::sort(kept.begin(), kept.end());
  for (std::int64_t j = begin; j < n; ++j) kept.push_back(j);
  return kept;
}

}  // namespace kvatlas::kernels
