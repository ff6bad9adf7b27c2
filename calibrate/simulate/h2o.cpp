// SPDX-License-Identifier: Apache-2.0
// H2O: a part of the budget goes to the tokens that got most attention, the rest to the last ones.
#include <algorithm>

#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {

PartPlanner planner_of(const H2o& part) {
  PartPlanner planner;
  planner.needs.columns = true;
  planner.cut = [&part](Draft& draft) {
    const std::int64_t best = part.heaviest();
    const std::int64_t recent = kernels::h2o_recent(draft.n, part.budget, best);
    draft.for_full_heads([&](std::int64_t layer, std::int64_t g) {
      draft.select(layer, g,
                   best_and_rest(draft.facts.columns[layer][g].const_data_ptr<float>(),
                                 std::min(recent, draft.facts.n), best, recent, draft.n));
    });
  };
  return planner;
}

}  // namespace kvatlas::calibrate
