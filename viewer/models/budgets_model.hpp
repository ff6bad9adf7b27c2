// SPDX-License-Identifier: Apache-2.0
// DynamicKV's screen: how many tokens each layer keeps, by task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/read_evidence.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// What decides which counts are read: one of the profile's window kinds.
struct BudgetChoices {
  std::int64_t window = calibrate::WindowBudget{}.window;
  std::int64_t kernel = calibrate::WindowBudget{}.kernel;
  calibrate::Pooling pooling = calibrate::WindowBudget{}.pooling;
};

struct BudgetsModel {
  struct Level : calibrate::CountsOfSamples {
    std::vector<std::string> tasks = {};  // of the samples
  };
  BudgetChoices choices;
  std::int64_t layers = 0;
  std::vector<Level> levels;  // a budget of the profile each, ascending
};
/// Error(usage) for what was not captured.
BudgetsModel read_budgets_model(const profile::Reader& profile,
                                const std::vector<std::size_t>& positions,
                                const BudgetChoices& choices);

enum class BudgetForm : std::uint8_t { raw, scaled, exact };  // exact is what is exported

struct BudgetSettings {
  std::int64_t budget = calibrate::WindowBudget{}.budget;  // of a level
  BudgetForm form = BudgetForm::exact;
  double r_max = calibrate::DynamicKv{}.r_max;
};

struct TaskBudgets {
  std::string task;
  std::size_t samples = 0;
  calibrate::BudgetSummary summary;
  /// Tokens that another layer has than in the summary of all samples, as a share of the total.
  double distance = 0;
};
/// What the settings give each layer.
struct BudgetDecisions {
  calibrate::BudgetSummary all;
  std::vector<TaskBudgets> tasks;  // alike ones beside each other
};
BudgetDecisions budget_decisions(const BudgetsModel& model, const BudgetSettings& settings);

struct BudgetsView : BudgetDecisions {
  Chart heatmap = {}, lines = {}, shares = {};  // shares: stacked, who gives to whom
};
BudgetsView budgets_view(const BudgetsModel& model, const BudgetSettings& settings);

}  // namespace kvatlas::viewer
