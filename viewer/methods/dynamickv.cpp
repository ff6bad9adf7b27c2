// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "viewer/methods/method_row.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace dynamickv_method {
namespace {

using calibrate::Document;
using nlohmann::json;
constexpr const calibrate::Method& kMethod = calibrate::method::kDynamicKv;

void show_budgets(const BudgetsModel& model, const Choices& choices,
                  const calibrate::CacheShape& shape, PolicyCard& card) {
  const BudgetSettings& settings = choices.budgets;
  const BudgetDecisions decisions = budget_decisions(model, settings);
  const bool maximum = model.choices.pooling == calibrate::Pooling::maximum;
  card.setting = str("budget ", settings.budget, " a layer, window ", model.choices.window,
                     ", kernel ", model.choices.kernel, maximum ? " (max)" : " (avg)");
  calibrate::DynamicKv part;
  part.select.window = model.choices.window;
  part.select.budget = settings.budget;
  part.fixed = decisions.all.budgets;
  set_kept({.name = {}, .parts = {part}}, shape, choices.length, card);
  card.advice = budgets_advice(model, settings, decisions);
  card.chart.title = "tokens kept by layer, beside the window";
  card.chart.x = layer_axis(model.layers);
  card.chart.table.columns = {{"layer"}, {"tokens kept", "tokens"}};
  Bars bars{"tokens kept", {}};
  const auto& budgets = decisions.all.budgets;
  for (std::size_t l = 0; l < budgets.size(); ++l) {
    const auto x = static_cast<double>(l), kept = static_cast<double>(budgets[l]);
    bars.bars.push_back({x, kept, str(budgets[l])});
    card.chart.table.rows.push_back({x, kept});
  }
  card.chart.bars.push_back(std::move(bars));
  const auto most = *std::max_element(budgets.begin(), budgets.end());
  const auto top = std::max(1.0, static_cast<double>(most));
  card.chart.y = {"", "", {{0, "0"}, {top, str(most)}}, {{0, top}}};
  const auto even = static_cast<double>(settings.budget - model.choices.window);
  card.chart.marks.push_back({"the same for all", even, false});
}

void show(const Evidence& evidence, const Choices& choices, PolicyCard& card) {
  show_model(evidence.budgets, card, [&](const BudgetsModel& model) {
    show_budgets(model, choices, evidence.shape, card);
  });
}

bool is_present(const calibrate::Part& part, const Evidence&, const Choices& choices) {
  const auto& known = std::get<calibrate::DynamicKv>(part).select;
  return known.budget == choices.budgets.budget && known.window == choices.budget_counts.window;
}

bool can_be_saved(const profile::Reader& profile, std::span<const Document>) {
  return profile.has(profile::name::kCounts);
}

json section(const Source& from) {
  const auto& choices = from.choices;
  BudgetSettings settings = choices.budgets;
  settings.form = BudgetForm::exact;
  const BudgetDecisions decisions = budget_decisions(from.models.budgets.value(), settings);
  const calibrate::DynamicKv part{{choices.budget_counts.window, settings.budget,
                                   choices.budget_counts.kernel, choices.budget_counts.pooling},
                                  settings.r_max,
                                  decisions.all.budgets};
  json out = calibrate::section_of(part);
  std::size_t samples = 0;
  for (const auto& task : decisions.tasks) {
    if (!task.task.empty()) out["result"]["tasks"][task.task] = task.summary.budgets;
    samples += task.samples;
  }
  out["samples"] = samples;
  return out;
}

void take(const calibrate::Part* part, const profile::Header& header, Choices& choices) {
  if (const auto* dynamic = part ? std::get_if<calibrate::DynamicKv>(part) : nullptr) {
    choices.budget_counts = {dynamic->select.window, dynamic->select.kernel,
                             dynamic->select.pooling};
    choices.budgets.budget = dynamic->select.budget;
    choices.budgets.r_max = dynamic->r_max;
  }
  choices.budgets.budget = in_grid(header, choices.budgets.budget, choices.budget_counts.window);
}

void add_searched(const json& section, ComparisonModel& model) {
  for (const auto& point : report_in<calibrate::BudgetReport>(section, kMethod).curve)
    add_tried(kMethod, point, point.kept_share, model);
}

void choose(const ComparedPolicy& policy, Choices& choices) {
  choices.budgets.budget = static_cast<std::int64_t>(policy.value);
}

void strip(const calibrate::Part& part, const json&, std::size_t, ComparisonModel::Strip& strip) {
  if (const auto& fixed = std::get<calibrate::DynamicKv>(part).fixed)
    set_budgets({fixed->begin(), fixed->end()}, strip);
}

}  // namespace
}  // namespace dynamickv_method

MethodRow dynamickv_row() {
  using namespace dynamickv_method;
  return {&kMethod, "budgets", nullptr,      show,   is_present, can_be_saved,
          section,  take,      add_searched, choose, strip};
}

}  // namespace kvatlas::viewer
