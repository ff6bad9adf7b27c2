// SPDX-License-Identifier: Apache-2.0
// Why a policy may serve, and what may go wrong: one sentence each, made of its numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "viewer/models/blocks_model.hpp"
#include "viewer/models/budgets_model.hpp"
#include "viewer/models/lazy_model.hpp"
#include "viewer/models/measured.hpp"
#include "viewer/models/sweep_model.hpp"

namespace kvatlas::viewer {

struct Advice {
  std::string reason, risk;
  std::optional<std::int64_t> layer, head;  // that show it
};

Advice lazy_advice(const LazyModel& model, const LazySettings& settings);
/// `blocks`: of query heads, as `settings` make them.
Advice blocks_advice(const BlocksModel& model, const BlocksSettings& settings,
                     const calibrate::Blocks& blocks);
Advice budgets_advice(const BudgetsModel& model, const BudgetSettings& settings,
                      const BudgetDecisions& decisions);
/// Of the candidate that was chosen.
Advice sweep_advice(const SweepModel& model, const SweepSettings& settings,
                    const SweepModel::Candidate& candidate);

/// What is said of the measured score, where it leaves a doubt; else empty.
std::string measured_risk(const Measured& measured);

}  // namespace kvatlas::viewer
