// SPDX-License-Identifier: Apache-2.0
// AdaKV: SnapKV's scores, and a budget that the heads of a layer share.
#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/core/Tensor.h>

#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/select.hpp"

namespace kvatlas::calibrate {
namespace {

/// Of the scores of a layer, [rows, positions], the best of those rows whose heads no part has
/// trimmed, `base` for each of them in the mean and `safe` at least: [row] their positions.
std::vector<std::vector<std::int64_t>> best_of_layer(const at::Tensor& scores, std::int64_t base,
                                                     std::int64_t safe, const Draft& draft,
                                                     std::int64_t layer) {
  const std::int64_t rows = scores.size(0), positions = scores.size(1);
  std::vector<std::int64_t> sharing;
  std::vector<float> together;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (!draft.full(layer, row * draft.kv_heads() / rows)) continue;
    sharing.push_back(row);
    const float* const first = scores[row].const_data_ptr<float>();
    together.insert(together.end(), first, first + positions);
    float* const copy = together.data() + together.size() - positions;
    kernels::select_largest(first, 1, positions, safe, [&](std::int64_t j) {
      copy[j] = std::numeric_limits<float>::infinity();
    });
  }
  auto found = best_together(together, positions, base * std::ssize(sharing));
  std::vector<std::vector<std::int64_t>> best(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < sharing.size(); ++i) best[sharing[i]] = std::move(found[i]);
  return best;
}

}  // namespace

PartPlanner planner_of(const AdaKv& part) {
  PartPlanner planner;
  planner.needs.rows = part.select.window;
  planner.cut = [&part](Draft& draft) {
    const WindowBudget& select = part.select;
    if (draft.facts.n <= select.budget) return;
    const std::int64_t safe = std::max<std::int64_t>(0, part.safe() - select.window);
    for (std::int64_t layer = 0; layer < draft.layers(); ++layer) {
      const at::Tensor scores = window_scores(select, draft, layer).cpu();
      auto tokens = best_of_layer(scores, select.budget - select.window, safe, draft, layer);
      for (auto& row : tokens)
        for (std::int64_t j = scores.size(1); j < draft.n; ++j) row.push_back(j);
      draft.select_in_layer(layer, tokens);
    }
  };
  return planner;
}

}  // namespace kvatlas::calibrate
