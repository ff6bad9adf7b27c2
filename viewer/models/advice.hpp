// SPDX-License-Identifier: Apache-2.0
// For each policy one sentence on why it may serve and one on what may go wrong, both made of its
// numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "viewer/models/blocks_model.hpp"
#include "viewer/models/budgets_model.hpp"
#include "viewer/models/lazy_model.hpp"
#include "viewer/models/measured.hpp"
#include "viewer/models/precision_model.hpp"
#include "viewer/models/sweep_model.hpp"

namespace kvatlas::viewer {

struct Advice {
  std::string reason, risk;
  /// The layer and the head in which it is seen best.
  std::optional<std::int64_t> layer, head;
};

Advice lazy_advice(const LazyModel& model, const LazySettings& settings);
/// `blocks` are those of query heads that `settings` give.
Advice blocks_advice(const BlocksModel& model, const BlocksSettings& settings,
                     const calibrate::Blocks& blocks);
Advice head_budgets_advice(const calibrate::HeadKv& part);  // with budgets
Advice budgets_advice(const BudgetsModel& model, const BudgetSettings& settings,
                      const BudgetDecisions& decisions);
/// `candidate` is the one that was chosen.
Advice sweep_advice(const SweepModel& model, const SweepSettings& settings,
                    const SweepModel::Candidate& candidate);
/// `chosen` is the point of the curve that is the policy; without it the document's policy is.
Advice precision_advice(const PrecisionModel& model, std::optional<std::size_t> chosen);

/// A sentence about the measured score if it leaves a doubt; empty if it leaves none.
std::string measured_risk(const Measured& measured);

}  // namespace kvatlas::viewer
