// SPDX-License-Identifier: Apache-2.0
// DynamicKV's calibration: how many tokens each layer keeps (docs/dynamickv.md).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "calibrate/methods/trials.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

/// The budgets of each sample that has more tokens than the window: [sample][layer].
struct BudgetsOfSamples {
  std::vector<std::size_t> positions;  // in the profile
  std::vector<std::vector<std::int64_t>> raw, scaled, exact;
  /// Leaves out all samples but those whose positions are among `of`.
  void keep(const std::vector<std::size_t>& of);
  /// The exact budgets of those samples whose positions are among `of`.
  BudgetSummary summary(const std::vector<std::size_t>& of) const;
};
/// Budgets at the settings of `part`. Error(usage) if the profile was not taken with them.
BudgetsOfSamples read_budgets(const Evidence& evidence, const DynamicKv& part);

struct DynamicRequest {
  /// Its budget is the document's only where none is wanted and nothing is tried.
  DynamicKv policy = {};
  std::optional<std::int64_t> budget = {};  // the document's; if not given, trials choose it
  std::vector<std::int64_t> budgets = {};   // that are compared; if empty, those of the profile
  double tolerance = 0;                     // share of the score that may be lost
  bool fixed_alone = false;                 // budgets found for each prompt are not tried
};

/// Without a model (`run` is null) the budgets of layers are found all the same, and nothing is
/// tried.
Calibrated calibrate_dynamickv(const Evidence& evidence, const DynamicRequest& request,
                               const RunTrials& run);

}  // namespace kvatlas::calibrate
