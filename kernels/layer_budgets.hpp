// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace kvatlas::kernels {

/// DynamicKV's tokens kept a layer, the window not counted (docs/dynamickv.md), from how many
/// of the largest window scores lie in each layer. No layer keeps more than the cap,
/// min(int(base * r_max), n_positions).
struct LayerBudgets {
  std::vector<std::int64_t> raw, scaled;  // as Algorithm 1 has them: what the cap cuts off is lost
  /// Sums to base * layers, or less if every layer is at the cap: what the cap cuts off goes to the
  /// other layers.
  std::vector<std::int64_t> exact;
};

/// counts: [n_layers] as top_counts gives them for k = min(base, n_positions) * heads * n_layers;
/// base: mean tokens kept a layer without the window; n_positions: prompt tokens before the window.
LayerBudgets layer_budgets(std::span<const std::int64_t> counts, std::int64_t base,
                           std::int64_t n_positions, double r_max = 10);

/// The same counts over so many of the lowest layers alone.
using CountsOfLowest = std::function<std::vector<std::int64_t>(std::int64_t layers)>;

/// Budgets of progressive updates (docs/dynamickv.md). After every `update` layers, and after the
/// last layer, the layers so far are given budgets whose sum is that of all layers, base *
/// n_layers, as far as the cap lets them. A layer keeps the least of its budgets, for what an
/// update drops is gone. With update 0 there is the one after the last layer.
LayerBudgets progressive_budgets(const CountsOfLowest& counts_of, std::int64_t n_layers,
                                 std::int64_t update, std::int64_t base, std::int64_t n_positions,
                                 double r_max = 10);

}  // namespace kvatlas::kernels
