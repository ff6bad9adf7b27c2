// SPDX-License-Identifier: Apache-2.0
// AdaKV and HeadKV: SnapKV's scores, and a budget that several heads share, unless each has a fixed
// one.
#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/core/Tensor.h>

#include "base/error.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/select.hpp"

namespace kvatlas::calibrate {
namespace {

/// Of the scores of these layers, [layer][rows, positions], the best of those rows whose heads no
/// part has trimmed: `base` for each of them in the mean, and `safe` at least. The window, which
/// has no scores, is kept with them.
void keep_best_together(const std::vector<at::Tensor>& scores, std::int64_t first_layer,
                        std::int64_t base, std::int64_t safe, Draft& draft) {
  const std::int64_t rows = scores.front().size(0), positions = scores.front().size(1);
  std::vector<std::pair<std::size_t, std::int64_t>> sharing;  // place among the layers, row
  std::vector<float> together;
  for (std::size_t l = 0; l < scores.size(); ++l)
    for (std::int64_t row = 0; row < rows; ++row) {
      if (!draft.full(first_layer + static_cast<std::int64_t>(l), row * draft.kv_heads() / rows))
        continue;
      sharing.emplace_back(l, row);
      const float* const first = scores[l][row].const_data_ptr<float>();
      together.insert(together.end(), first, first + positions);
      float* const copy = together.data() + together.size() - positions;
      kernels::select_largest(first, 1, positions, safe, [&](std::int64_t j) {
        copy[j] = std::numeric_limits<float>::infinity();
      });
    }
  auto found = best_together(together, positions, base * std::ssize(sharing));
  std::vector<std::vector<std::vector<std::int64_t>>> best(
      scores.size(), std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(rows)));
  for (std::size_t i = 0; i < sharing.size(); ++i) {
    auto& kept = best[sharing[i].first][sharing[i].second];
    kept = std::move(found[i]);
    for (std::int64_t j = positions; j < draft.n; ++j) kept.push_back(j);
  }
  for (std::size_t l = 0; l < scores.size(); ++l)
    draft.select_in_layer(first_layer + static_cast<std::int64_t>(l), best[l]);
}

/// Every `together` layers share what the heads keep.
void share_budgets(const WindowBudget& select, std::int64_t safe, std::int64_t together,
                   Draft& draft) {
  if (draft.facts.n <= select.budget) return;
  for (std::int64_t first = 0; first < draft.layers(); first += together) {
    std::vector<at::Tensor> scores;
    for (std::int64_t layer = first; layer < first + together; ++layer)
      scores.push_back(window_scores(select, draft, layer).cpu());
    keep_best_together(scores, first, select.budget - select.window,
                       std::max<std::int64_t>(0, safe - select.window), draft);
  }
}

/// Each head keeps as many tokens besides the window as its budget says.
void keep_budgets(const WindowBudget& select, const HeadBudgets& budgets, Draft& draft) {
  if (std::ssize(budgets) != draft.layers() || std::ssize(budgets.front()) != draft.kv_heads())
    fail(ErrorCode::usage, draft.policy.name, ": the policy has budgets for ", budgets.size(),
         " layers of ", budgets.front().size(), " KV heads, the model has ", draft.layers(), " of ",
         draft.kv_heads());
  const std::int64_t positions = draft.facts.n - select.window;
  if (positions < 1) return;
  for (std::int64_t layer = 0; layer < draft.layers(); ++layer) {
    const at::Tensor scores = window_scores(select, draft, layer).cpu();
    for (std::int64_t g = 0; g < draft.kv_heads(); ++g)
      if (draft.full(layer, g))
        draft.select(layer, g,
                     best_and_rest(scores[g].const_data_ptr<float>(), positions,
                                   std::min(budgets[layer][g], positions), positions, draft.n));
  }
}

}  // namespace

PartPlanner planner_of(const AdaKv& part) {
  PartPlanner planner;
  planner.needs.rows = part.select.window;
  planner.cut = [&part](Draft& draft) { share_budgets(part.select, part.safe(), 1, draft); };
  return planner;
}

PartPlanner planner_of(const HeadKv& part) {
  PartPlanner planner;
  planner.needs.rows = part.select.window;
  planner.cut = [&part](Draft& draft) {
    if (part.fixed)
      keep_budgets(part.select, *part.fixed, draft);
    else
      share_budgets(part.select, part.safe(), draft.layers(), draft);
  };
  return planner;
}

}  // namespace kvatlas::calibrate
