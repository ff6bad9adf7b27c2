// SPDX-License-Identifier: Apache-2.0
// DynamicKV's calibration: how many tokens each layer keeps (docs/dynamickv.md).
#pragma once

#include <vector>

#include "calibrate/methods/trials.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

/// What each sample of more tokens than the window gets in each layer: [sample][layer].
struct BudgetsOfSamples {
  std::vector<std::size_t> positions;  // in the profile
  std::vector<std::vector<std::int64_t>> raw, scaled, exact;
  /// Exact budgets of those samples that are among `of`.
  BudgetSummary summary(const std::vector<std::size_t>& of) const;
};
/// At the part's settings; Error(usage) for settings that the profile lacks.
BudgetsOfSamples read_budgets(const Evidence& evidence, const DynamicKv& part);

struct DynamicRequest {
  DynamicKv policy;                   // window, kernel, pooling, the document's budget, r_max
  std::vector<std::int64_t> budgets;  // of the sweep; empty: those of the profile
};

/// `run` null: no model; the budgets need none.
Calibrated calibrate_dynamickv(const Evidence& evidence, const DynamicRequest& request,
                               const RunTrials& run);

}  // namespace kvatlas::calibrate
