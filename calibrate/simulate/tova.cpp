// SPDX-License-Identifier: Apache-2.0
// TOVA: the last token's attention, in the mean over all heads of a layer, says which tokens stay.
#include <ATen/core/Tensor.h>

#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {

at::Tensor last_row_scores(const at::Tensor& rows) {
  return rows.select(1, rows.size(1) - 1).narrow(1, 0, rows.size(2) - 1).mean(0, true);
}

PartPlanner planner_of(const Tova& part) {
  return best_scored({.rows = 1}, part.budget, [](const Draft& draft, std::int64_t layer) {
    return last_row_scores(draft.facts.rows.select(0, layer));
  });
}

}  // namespace kvatlas::calibrate
