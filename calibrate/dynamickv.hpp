// SPDX-License-Identifier: Apache-2.0
// DynamicKV's calibration: how many tokens each layer keeps (methods.md, section 3).
#pragma once

#include <vector>

#include "calibrate/evidence.hpp"
#include "calibrate/trials.hpp"

namespace kvatlas::calibrate {

struct DynamicRequest {
  DynamicKv policy;                   // window, kernel, pooling, the document's budget, r_max
  std::vector<std::int64_t> budgets;  // of the sweep; empty: those of the profile
};

/// `run` null: no model; the budgets need none.
Calibrated calibrate_dynamickv(const Evidence& evidence, const DynamicRequest& request,
                               const RunTrials& run);

}  // namespace kvatlas::calibrate
