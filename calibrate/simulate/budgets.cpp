// SPDX-License-Identifier: Apache-2.0
// DynamicKV, SnapKV and PyramidKV: each KV head, or each query head, keeps the prompt's last
// tokens, the window, and of the others those that the window's rows score highest, as many as its
// layer's budget.
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "analyzer/capture/selections-inl.hpp"
#include "analyzer/capture/tensors-inl.hpp"
#include "base/error.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/kernels.hpp"

namespace kvatlas::calibrate {
using capture::view_of;

at::Tensor window_scores(const WindowBudget& select, std::int64_t groups, const at::Tensor& all) {
  return capture::window_scores(all, {select.window, select.kernel, select.pooling}, groups);
}

at::Tensor window_scores(const WindowBudget& select, std::int64_t groups, const Draft& draft,
                         std::int64_t layer) {
  return window_scores(select, groups, draft.facts.rows.select(0, layer));
}

at::Tensor window_scores(const WindowBudget& select, const Draft& draft, std::int64_t layer) {
  return window_scores(select, select.per_query_head ? draft.config.n_heads : draft.kv_heads(),
                       draft, layer);
}

at::Tensor with_window(const at::Tensor& scores, std::int64_t window) {
  return at::cat({scores, (scores.max() + 1).expand({scores.size(0), window})}, 1);
}

namespace {

std::vector<std::int64_t> budgets_of(const SnapKv& part, const Draft& draft) {
  const std::int64_t mean = part.select.budget - part.select.window;
  if (part.pyramid) return pyramid_budgets(mean, draft.layers());
  return std::vector<std::int64_t>(static_cast<std::size_t>(draft.layers()), mean);
}

std::vector<std::int64_t> budgets_of(const DynamicKv& part, const Draft& draft) {
  const std::int64_t positions = draft.facts.n - part.select.window, layers = draft.layers();
  if (part.fixed) {
    auto budgets = *part.fixed;
    if (static_cast<std::int64_t>(budgets.size()) != layers)
      fail(ErrorCode::usage, draft.policy.name, ": the policy has budgets for ", budgets.size(),
           " layers, the model has ", layers);
    for (auto& budget : budgets) budget = std::min(budget, positions);
    return budgets;
  }
  const std::int64_t base = part.select.budget - part.select.window, heads = draft.config.n_heads;
  std::vector<at::Tensor> of_layers;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    of_layers.push_back(window_scores(part.select, heads, draft, layer));
  const at::Tensor scores = at::stack(of_layers).cpu();
  const auto counts_of = [&](std::int64_t lowest) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(lowest));
    kernels::top_counts({view_of<const float, 3>(scores.narrow(0, 0, lowest)),
                         {std::min(base, positions) * heads * lowest},
                         {counts.data(), {1, lowest}}});
    return counts;
  };
  return progressive_budgets(counts_of, layers, part.update, base, positions, part.r_max).exact;
}

template <class P>
PartPlanner budget_planner(const P& part) {
  PartPlanner planner;
  planner.needs.rows = part.select.window;
  planner.cut = [&part](Draft& draft) {
    const WindowBudget& select = part.select;
    if (select.budget <= select.window)
      fail(ErrorCode::usage, draft.policy.name, ": a budget of ", select.budget,
           " tokens leaves none beside the window of ", select.window);
    const std::int64_t positions = draft.facts.n - select.window;
    if (positions < 1) return;
    const auto budgets = budgets_of(part, draft);
    for (std::int64_t layer = 0; layer < draft.layers(); ++layer) {
      const at::Tensor scores = window_scores(select, draft, layer).cpu();
      draft.select_in_layer(layer, best_of_rows(scores, budgets[layer], draft.n));
    }
    draft.plan.budgets = budgets;
  };
  return planner;
}

}  // namespace

PartPlanner planner_of(const DynamicKv& part) { return budget_planner(part); }
PartPlanner planner_of(const SnapKv& part) { return budget_planner(part); }

}  // namespace kvatlas::calibrate
