// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_budgets.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace kvatlas::kernels {

LayerBudgets layer_budgets(std::span<const std::int64_t> counts, std::int64_t n_heads,
                           std::int64_t base, std::int64_t n_positions, double r_max) {
  const auto n_layers = static_cast<std::int64_t>(counts.size());
  if (n_layers == 0 || n_heads < 1 || base < 0 || n_positions < 0 || !(r_max >= 1))
    fail(ErrorCode::usage, "layer budgets need layers, heads, a budget and r_max of at least 1");
  LayerBudgets out;
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  const auto cap = static_cast<std::int64_t>(
      std::min(static_cast<double>(n_positions), static_cast<double>(base) * r_max));
  for (const auto count : counts) out.raw.push_back(most > 0 ? cap * count / most : 0);
  const std::int64_t raw_sum = std::accumulate(out.raw.begin(), out.raw.end(), std::int64_t{0});
  for (const auto raw : out.raw)
    out.scaled.push_back(raw_sum > 0 ? raw * (base * n_layers) / raw_sum : 0);

  if (base >= n_positions) {
    out.exact.assign(counts.size(), n_positions);
    return out;
  }
  for (const auto count : counts) out.exact.push_back(count / n_heads);
  std::int64_t left =
      base * n_layers - std::accumulate(out.exact.begin(), out.exact.end(), std::int64_t{0});
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return counts[a] % n_heads > counts[b] % n_heads;
  });
  for (const std::size_t layer : order)
    if (left-- > 0) ++out.exact[layer];
  return out;
}

}  // namespace kvatlas::kernels
