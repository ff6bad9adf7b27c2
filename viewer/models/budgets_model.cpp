// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/budgets_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::BudgetSummary;
using Counts = std::vector<std::int64_t>;

const BudgetsModel::Level& level_of(const BudgetsModel& model, std::int64_t budget) {
  std::vector<std::int64_t> there;
  for (const auto& level : model.levels) {
    if (level.select.budget == budget) return level;
    there.push_back(level.select.budget);
  }
  fail(ErrorCode::usage, "the profile has no counts for a budget of ", budget, ", but for ",
       list_str(there));
}

Counts budgets_of(const BudgetsModel::Level& level, std::size_t sample,
                  const BudgetSettings& settings) {
  auto found = level.budgets(sample, settings.r_max);
  switch (settings.form) {
    case BudgetForm::raw:
      return std::move(found.raw);
    case BudgetForm::scaled:
      return std::move(found.scaled);
    case BudgetForm::exact:
      break;
  }
  return std::move(found.exact);
}

/// Half of the tokens by which two lists of budgets differ: those that lie in another layer.
double moved(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t l = 0; l < a.size(); ++l) sum += std::abs(a[l] - b[l]);
  return sum / 2;
}

/// From the task nearest to all, each time the one most like the last.
void order_by_likeness(std::vector<TaskBudgets>& tasks) {
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const auto farther = [&](const TaskBudgets& task) {
      return i == 0 ? task.distance : moved(task.summary.mean, tasks[i - 1].summary.mean);
    };
    const auto next =
        std::min_element(tasks.begin() + static_cast<std::ptrdiff_t>(i), tasks.end(),
                         [&](const auto& a, const auto& b) { return farther(a) < farther(b); });
    std::iter_swap(tasks.begin() + static_cast<std::ptrdiff_t>(i), next);
  }
}

void draw_heatmap(const BudgetsView& view, Chart& chart) {
  Matrix matrix{"tokens kept", "tokens", {}, {}, {}};
  for (const auto& task : view.tasks) matrix.column_labels.push_back(task.task);
  double most = 1;
  for (std::size_t l = 0; l < view.all.mean.size(); ++l) {
    matrix.row_labels.push_back(str(l));
    for (const auto& task : view.tasks) {
      matrix.values.push_back(task.summary.mean[l]);
      most = std::max(most, task.summary.mean[l]);
    }
  }
  matrix.range = {0, most};
  chart.matrices.push_back(std::move(matrix));
}

/// One line a task with its spread, and the budgets that pay no heed to the layers.
void draw_lines(const BudgetsModel& model, const BudgetSettings& settings, const BudgetsView& view,
                Chart& chart) {
  const std::int64_t base = settings.budget - model.choices.window;
  for (const auto& task : view.tasks) {
    Line line{task.task, {}};
    for (std::size_t l = 0; l < task.summary.mean.size(); ++l) {
      const double mean = task.summary.mean[l], spread = task.summary.deviation[l];
      line.points.push_back(
          {static_cast<double>(l), mean, {}, std::max(0.0, mean - spread), mean + spread});
    }
    chart.bands.push_back({"", line.points, static_cast<int>(chart.lines.size())});
    chart.lines.push_back(std::move(line));
  }
  Line equal{"equal", {}, Emphasis::reference}, pyramid{"pyramid", {}, Emphasis::reference};
  const Counts falling = calibrate::pyramid_budgets(base, model.layers);
  for (std::size_t l = 0; l < falling.size(); ++l) {
    equal.points.push_back({static_cast<double>(l), static_cast<double>(base)});
    pyramid.points.push_back({static_cast<double>(l), static_cast<double>(falling[l])});
  }
  chart.lines.push_back(std::move(equal));
  chart.lines.push_back(std::move(pyramid));
}

void draw_shares(const BudgetsView& view, Chart& chart) {
  for (std::size_t l = 0; l < view.all.mean.size(); ++l) {
    Bars bars{str("layer ", l), {}, l > 0};
    for (std::size_t t = 0; t < view.tasks.size(); ++t) {
      const auto& mean = view.tasks[t].summary.mean;
      const double total = std::accumulate(mean.begin(), mean.end(), 0.0);
      const double share = total > 0 ? mean[l] / total : 0;
      bars.bars.push_back({static_cast<double>(t), share, percent_text(share)});
    }
    chart.bars.push_back(std::move(bars));
  }
}

Table table_of(const BudgetsView& view) {
  Table table;
  table.columns = {{"layer"},           {"budget", "tokens"},
                   {"mean", "tokens"},  {"spread", "tokens"},
                   {"least", "tokens"}, {"most", "tokens"}};
  for (const auto& task : view.tasks) table.columns.push_back({task.task, "tokens"});
  const BudgetSummary& all = view.all;
  for (std::size_t l = 0; l < all.mean.size(); ++l) {
    auto& row = table.rows.emplace_back();
    row = {l, all.budgets[l], all.mean[l], all.deviation[l], all.least[l], all.most[l]};
    for (const auto& task : view.tasks) row.push_back(task.summary.budgets[l]);
  }
  return table;
}

}  // namespace

BudgetsModel read_budgets_model(const profile::Reader& profile,
                                const std::vector<std::size_t>& positions,
                                const BudgetChoices& choices) {
  calibrate::require_fit(calibrate::method::kDynamicKv, profile.header());
  BudgetsModel model{choices, calibrate::cache_shape(profile.header()).layers, {}};
  calibrate::WindowBudget select{choices.window, 0, choices.kernel, choices.pooling};
  calibrate::require_captured(profile, profile::name::kCounts, "scores");
  calibrate::window_kind_row(profile, select);
  for (const auto budget : profile::axis_of(profile.header(), "budget").values) {
    if (budget <= choices.window) continue;
    select.budget = budget;
    BudgetsModel::Level level{calibrate::read_counts(profile, positions, select)};
    for (const auto position : level.positions)
      level.tasks.push_back(profile.samples()[position].task);
    if (!level.positions.empty()) model.levels.push_back(std::move(level));
  }
  if (model.levels.empty()) fail(ErrorCode::usage, "no sample chosen has window scores");
  std::sort(model.levels.begin(), model.levels.end(),
            [](const auto& a, const auto& b) { return a.select.budget < b.select.budget; });
  return model;
}

BudgetDecisions budget_decisions(const BudgetsModel& model, const BudgetSettings& settings) {
  const auto& level = level_of(model, settings.budget);
  std::vector<Counts> all;
  std::map<std::string, std::vector<Counts>> by_task;
  for (std::size_t sample = 0; sample < level.positions.size(); ++sample) {
    all.push_back(budgets_of(level, sample, settings));
    by_task[level.tasks[sample]].push_back(all.back());
  }
  BudgetDecisions out;
  out.all = calibrate::summarise_budgets(all);
  const double total = std::accumulate(out.all.mean.begin(), out.all.mean.end(), 0.0);
  for (const auto& [task, budgets] : by_task) {
    BudgetSummary summary = calibrate::summarise_budgets(budgets);
    const double distance = total > 0 ? moved(summary.mean, out.all.mean) / total : 0;
    out.tasks.push_back({task, budgets.size(), std::move(summary), distance});
  }
  order_by_likeness(out.tasks);
  return out;
}

BudgetsView budgets_view(const BudgetsModel& model, const BudgetSettings& settings) {
  BudgetsView view{budget_decisions(model, settings)};
  std::size_t samples = 0;
  double farthest = 0;
  for (const auto& task : view.tasks) {
    samples += task.samples;
    farthest = std::max(farthest, task.distance);
  }
  Chart chart;
  chart.notes = {
      str("window ", model.choices.window, ", budget ", settings.budget, ", ",
          count_of(samples, "sample", "samples"), "; the window's own tokens are kept beside"),
      str("the task farthest from the mean has ", percent_text(farthest),
          " of the tokens in other layers")};
  chart.table = table_of(view);
  view.heatmap = view.lines = view.shares = chart;
  view.heatmap.title = "DynamicKV: tokens kept by layer and task";
  view.heatmap.x = {"task", ""};
  view.heatmap.y = layer_axis(model.layers);
  draw_heatmap(view, view.heatmap);
  view.lines.title = "DynamicKV: tokens kept by layer";
  view.lines.x = layer_axis(model.layers);
  view.lines.y = {"tokens kept", "tokens"};
  draw_lines(model, settings, view, view.lines);
  view.lines.notes.pop_back();
  view.shares.notes.clear();
  view.shares.title = "DynamicKV: each layer's share of the tokens";
  view.shares.x = {"task", ""};
  for (std::size_t t = 0; t < view.tasks.size(); ++t)
    view.shares.x.ticks.push_back({static_cast<double>(t), view.tasks[t].task});
  view.shares.y = {"share", "", {}, {{0, 1}}};
  draw_shares(view, view.shares);
  return view;
}

}  // namespace kvatlas::viewer
