// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvatlas::kernels {

/// DynamicKV's tokens kept a layer, the window not counted (docs/dynamickv.md), from how many
/// of the largest window scores lie in each layer.
struct LayerBudgets {
  std::vector<std::int64_t> raw, scaled;  // as Algorithm 1 has them
  std::vector<std::int64_t> exact;        // sums to base * layers, no layer above n_positions
};

/// counts: [n_layers] as top_counts gives them for k = min(base, n_positions) * n_heads * n_layers;
/// base: mean tokens kept a layer without the window; n_positions: prompt tokens before the window.
LayerBudgets layer_budgets(std::span<const std::int64_t> counts, std::int64_t n_heads,
                           std::int64_t base, std::int64_t n_positions, double r_max = 10);

}  // namespace kvatlas::kernels
