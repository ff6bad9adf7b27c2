// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/budgets_screen.hpp"

#include <gmock/gmock.h>

#include "tests/gui/shown_screen.hpp"

namespace kvatlas::viewer::budgets_screen_tests {
namespace {

using testing::HasSubstr;
using testing_gui::grab_screenshots;
using testing_gui::ShownScreen;
using Shown = ShownScreen<BudgetsScreen>;

void expect_same(Shown& shown, const std::string& task = {}) {
  const profile::Reader reader(shown.small().profile_path());
  const BudgetsView wanted =
      budgets_view(read_budgets_model(reader, shown.session().profile()->positions(task), {}),
                   shown.choices().budgets);
  EXPECT_EQ(shown->view().all.budgets, wanted.all.budgets);
  EXPECT_EQ(shown->view().all.mean, wanted.all.mean);
  EXPECT_EQ(shown->view().tasks.size(), wanted.tasks.size());
}

TEST(BudgetsScreen, LevelsFormsAndTasks) {
  Shown shown;
  EXPECT_EQ(shown->message(), QString());
  // The nearest level to what the profile does not have.
  shown.change([](Choices& choices) { choices.budgets.budget = 128; });
  EXPECT_EQ(shown.control<QComboBox>("budget").currentText(), "64");
  EXPECT_TRUE(shown->act(Act::handle_down));
  shown.settle();
  EXPECT_EQ(shown.choices().budgets.budget, 32);
  expect_same(shown);
  shown.control<QSlider>("budget_slider").setValue(1);
  shown.settle();
  EXPECT_EQ(shown.choices().budgets.budget, 64);
  shown.control<QComboBox>("form").setCurrentIndex(0);
  shown.settle();
  EXPECT_EQ(shown.choices().budgets.form, BudgetForm::raw);
  expect_same(shown);
  grab_screenshots(*shown, shown.session(), "budgets-screen");
  shown.change([](Choices& choices) { choices.task = "needle"; });
  expect_same(shown, "needle");
  QTest::mouseClick(&shown->heatmap_chart(), Qt::LeftButton, {},
                    shown->heatmap_chart().cell_place(0, 3, 0));
  EXPECT_EQ(shown.session().selection().current().layer, 3);
  EXPECT_EQ(shown->lines_chart().chart().marks.back().label, "layer 3");
}

TEST(BudgetsScreen, SaysWhatTheProfileLacks) {
  Shown shown({.samples = 2, .scores = false});
  EXPECT_THAT(shown->message().toStdString(), HasSubstr("--capture scores"));
}

}  // namespace
}  // namespace kvatlas::viewer::budgets_screen_tests
