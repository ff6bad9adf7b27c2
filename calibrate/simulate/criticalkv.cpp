// SPDX-License-Identifier: Apache-2.0
// CriticalKV: a part of the budget by SnapKV's scores, the rest by these scores and what a token's
// values add to the layer's output.
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/select.hpp"

namespace kvatlas::calibrate {

PartPlanner planner_of(const CriticalKv& part) {
  const Needs needs{.rows = part.select.window, .value_outputs = true};
  return best_scored(needs, part.select.budget, [&part](const Draft& draft, std::int64_t layer) {
    const at::Tensor scores =
        with_window(window_scores(part.select, draft, layer), part.select.window).cpu();
    at::Tensor weighed =
        ((scores + part.epsilon) * draft.facts.value_outputs[layer].cpu()).contiguous();
    for (std::int64_t g = 0; g < scores.size(0); ++g) {
      float* const row = weighed[g].mutable_data_ptr<float>();
      kernels::select_largest(
          scores[g].const_data_ptr<float>(), 1, scores.size(1), part.first(),
          [&](std::int64_t j) { row[j] = std::numeric_limits<float>::infinity(); });
    }
    return weighed;
  });
}

}  // namespace kvatlas::calibrate
