// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/budgets_model.hpp"

#include <gmock/gmock.h>

#include "calibrate/methods/dynamickv.hpp"
#include "tests/unit/viewer_models/open_profile.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(BudgetsModel, NumbersAreTheCommandLines) {
  const OpenProfile open;
  const BudgetsModel model = read_budgets_model(open.reader(), all_samples(open.reader()), {});
  ASSERT_EQ(model.levels.size(), 2u);
  const calibrate::Evidence evidence(open.reader(), {});
  calibrate::DynamicRequest request;
  request.policy.select.budget = 64;
  const json report = calibrate_dynamickv(evidence, request, {}).section;
  for (const auto& entry : report["sweep"]) {
    BudgetSettings settings;
    settings.budget = entry["budget"];
    const BudgetsView view = budgets_view(model, settings);
    EXPECT_EQ(json(view.all.budgets), entry["exact"]);
    EXPECT_EQ(json(view.all.mean), entry["mean"]);
    EXPECT_EQ(json(view.all.deviation), entry["deviation"]);
    ASSERT_EQ(view.tasks.size(), entry["tasks"].size());
    for (const auto& task : view.tasks) {
      EXPECT_EQ(json(task.summary.budgets), entry["tasks"][task.task]["exact"]);
      EXPECT_EQ(json(task.summary.least), entry["tasks"][task.task]["least"]);
    }
    settings.form = BudgetForm::raw;
    EXPECT_EQ(json(budgets_view(model, settings).all.mean), entry["raw"]);
    settings.form = BudgetForm::scaled;
    EXPECT_EQ(json(budgets_view(model, settings).all.mean), entry["scaled"]);
  }
}

/// Two samples of each task, counts of one head so that they are the budgets.
BudgetsModel three_tasks() {
  BudgetsModel model;
  model.layers = 2;
  BudgetsModel::Level level;
  level.select.budget = 26;
  for (const auto& [task, counts] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
           {"a", {2, 18}}, {"b", {18, 2}}, {"c", {13, 7}}, {"d", {7, 13}}}) {
    level.positions.push_back(level.positions.size());
    level.tasks.push_back(task);
    level.before.push_back(1000);
    level.counts.push_back(counts);
  }
  model.levels.push_back(level);
  return model;
}

TEST(BudgetsModel, TasksAreOrderedByLikeness) {
  BudgetSettings settings;
  settings.budget = 26;
  const BudgetsView view = budgets_view(three_tasks(), settings);
  std::vector<std::string> order;
  for (const auto& task : view.tasks) order.push_back(task.task);
  // From the mean (10, 10): c is 3 away, d is 6 from c, a is 5 from d, b comes last; but b is 5
  // from c, nearer than d.
  EXPECT_THAT(order, ElementsAre("c", "b", "d", "a"));
  EXPECT_DOUBLE_EQ(view.tasks[3].distance, 8 / 20.0);
  EXPECT_THAT(view.heatmap.notes.back(), HasSubstr("40.0 % of the tokens"));
  const Matrix& matrix = view.heatmap.matrices.at(0);
  EXPECT_DOUBLE_EQ(matrix.at(1, 1), 2);
  EXPECT_DOUBLE_EQ(matrix.range.second, 18);
  EXPECT_EQ(view.shares.bars.size(), 2u);
  EXPECT_DOUBLE_EQ(view.shares.bars[0].bars[3].height, 0.1);
  EXPECT_TRUE(view.shares.bars[1].stacked);
  ASSERT_EQ(view.lines.lines.size(), 6u);  // four tasks, equal, pyramid
  EXPECT_DOUBLE_EQ(view.lines.lines[4].points[1].y, 10);
  EXPECT_GT(view.lines.lines[5].points[0].y, view.lines.lines[5].points[1].y);
  for (const auto& row : view.lines.table.rows)
    EXPECT_EQ(row.size(), view.lines.table.columns.size());
}

TEST(BudgetsModel, RefusesWhatTheProfileLacks) {
  const OpenProfile open({.samples = 2, .scores = false});
  EXPECT_THAT(refusal([&] { read_budgets_model(open.reader(), {0}, {}); }),
              HasSubstr("--capture scores"));
  const OpenProfile with({.samples = 2});
  EXPECT_THAT(refusal([&] { read_budgets_model(with.reader(), {0}, {.window = 16, .kernel = 9}); }),
              HasSubstr("kernel=9"));
  BudgetSettings settings;
  settings.budget = 27;
  EXPECT_THAT(refusal([&] { budgets_view(three_tasks(), settings); }), HasSubstr("budget of 27"));
}

}  // namespace
}  // namespace kvatlas::viewer
