// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/read.hpp"
#include "kernels/top_counts_impl.hpp"

namespace kvatlas::kernels::reference {
namespace {

/// Whether score `a` ranks before `b`; NaN ranks last.
bool before(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a > b; }

}  // namespace

void top_counts(const TopCounts& io) {
  const auto [n_layers, n_heads, n_positions] = io.scores.sizes;
  std::vector<float> all;
  for (std::int64_t layer = 0; layer < n_layers; ++layer)
    for (std::int64_t head = 0; head < n_heads; ++head)
      for (std::int64_t j = 0; j < n_positions; ++j) all.push_back(io.scores(layer, head, j));
  std::vector<std::int64_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return before(all[a], all[b]); });
  for (std::size_t i = 0; i < io.k.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    for (std::int64_t layer = 0; layer < n_layers; ++layer) io.counts(row, layer) = 0;
    for (std::int64_t rank = 0; rank < io.k[i]; ++rank)
      ++io.counts(row, order[rank] / (n_heads * n_positions));
  }
}

}  // namespace kvatlas::kernels::reference
