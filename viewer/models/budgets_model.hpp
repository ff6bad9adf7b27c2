// SPDX-License-Identifier: Apache-2.0
// The numbers of DynamicKV's screen: how many tokens each layer keeps for each task.
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

/// Which counts are read: those of one window, kernel and pooling that the profile has.
struct BudgetChoices {
  std::int64_t window = calibrate::WindowBudget{}.window;
  std::int64_t kernel = calibrate::WindowBudget{}.kernel;
  calibrate::Pooling pooling = calibrate::WindowBudget{}.pooling;
};

struct BudgetsModel {
  struct Level : calibrate::CountsOfSamples {
    std::vector<std::string> tasks = {};  // the task of each sample
  };
  BudgetChoices choices;
  std::int64_t layers = 0;
  /// One for each budget that the profile counted for, by ascending budget.
  std::vector<Level> levels;
};
/// Error(usage) if the profile has no such counts.
BudgetsModel read_budgets_model(const profile::Reader& profile,
                                const std::vector<std::size_t>& positions,
                                const BudgetChoices& choices);

enum class BudgetForm : std::uint8_t { raw, scaled, exact };  // `exact` is what is exported

struct BudgetSettings {
  std::int64_t budget = calibrate::WindowBudget{}.budget;  // one of the model's levels
  BudgetForm form = BudgetForm::exact;
  double r_max = calibrate::DynamicKv{}.r_max;
};

struct TaskBudgets {
  std::string task;
  std::size_t samples = 0;
  calibrate::BudgetSummary summary;
  /// The share of the tokens that lie in other layers than in the summary of all samples.
  double distance = 0;
};
/// How many tokens the settings give each layer. It is quick, for nothing is drawn.
struct BudgetDecisions {
  calibrate::BudgetSummary all;
  /// In an order that puts tasks beside each other that are alike.
  std::vector<TaskBudgets> tasks;
};
BudgetDecisions budget_decisions(const BudgetsModel& model, const BudgetSettings& settings);

struct BudgetsView : BudgetDecisions {
  /// `shares` stacks the layers' shares of each task.
  Chart heatmap = {}, lines = {}, shares = {};
};
BudgetsView budgets_view(const BudgetsModel& model, const BudgetSettings& settings);

}  // namespace kvatlas::viewer
