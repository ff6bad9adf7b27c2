// SPDX-License-Identifier: Apache-2.0
// Every layer keeps the initial and the recent tokens.
#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {

PartPlanner planner_of(const Streaming& part) {
  PartPlanner planner;
  planner.cut = [&part](Draft& draft) {
    draft.for_full_heads(
        [&](std::int64_t layer, std::int64_t g) { draft.keep_window(layer, g, part.keep); });
  };
  planner.window_of = [&part](std::int64_t) { return part.keep; };
  return planner;
}

}  // namespace kvatlas::calibrate
