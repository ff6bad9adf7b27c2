// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/lazy_screen.hpp"

#include <QSignalSpy>

#include <gmock/gmock.h>

#include "calibrate/policy/policy.hpp"
#include "tests/gui/shown_screen.hpp"

namespace kvatlas::viewer::lazy_screen_tests {
namespace {

using testing::HasSubstr;
using testing_gui::grab_screenshots;
using testing_gui::ShownScreen;
using Shown = ShownScreen<LazyScreen>;

/// What the model gives for the session's choices, which the command line's numbers are held to.
LazyView expected(Shown& shown) {
  const profile::Reader reader(shown.small().profile_path());
  const Choices& choices = shown.choices();
  LazySettings settings = choices.lazy;
  settings.length = choices.length;
  return lazy_view(read_lazy_model(reader, shown.session().profile()->positions(choices.task),
                                   choices.lazy_arrays, {}),
                   settings);
}

void expect_same(Shown& shown) {
  const LazyView wanted = expected(shown);
  EXPECT_EQ(shown->view().rates, wanted.rates);
  EXPECT_EQ(shown->view().lazy_layers, wanted.lazy_layers);
  EXPECT_EQ(shown->view().savings.kv_ratio, wanted.savings.kv_ratio);
  EXPECT_EQ(shown->view().consistency, wanted.consistency);
  EXPECT_EQ(shown->masses_chart().chart().title, wanted.layers.title);
}

TEST(LazyScreen, ShowsTheModelsNumbers) {
  Shown shown;
  EXPECT_EQ(shown->message(), QString());
  expect_same(shown);
  EXPECT_EQ(shown->table().rows.size(), 4u);
  EXPECT_NE(shown->picture(), nullptr);
  grab_screenshots(*shown, shown.session(), "lazy-screen");
}

TEST(LazyScreen, DraggingTheThresholdIsOneStepOfUndo) {
  Shown shown;
  const double before = shown.choices().lazy.threshold;
  QSignalSpy changes(&shown.session(), &Session::choices_changed);
  shown.drag_handle(shown->masses_chart(), Handle::lazy_threshold, {0, 60});
  EXPECT_GE(changes.count(), 2);
  EXPECT_LT(shown.choices().lazy.threshold, before);
  expect_same(shown);
  EXPECT_EQ(shown.session().undo().count(), 1);
  EXPECT_DOUBLE_EQ(shown.control<QDoubleSpinBox>("threshold").value(),
                   std::round(shown.choices().lazy.threshold * 1e5) / 1e5);

  // The same handle beside it, and a step of its own.
  const double between = shown.choices().lazy.threshold;
  shown.drag_handle(shown->scores_chart(), Handle::lazy_threshold, {-40, 0});
  EXPECT_LT(shown.choices().lazy.threshold, between);
  expect_same(shown);
  ASSERT_EQ(shown.session().undo().count(), 2);
  shown.session().undo().undo();
  shown.settle();
  EXPECT_EQ(shown.choices().lazy.threshold, between);
  expect_same(shown);
  shown.session().undo().undo();
  shown.settle();
  EXPECT_EQ(shown.choices().lazy.threshold, before);
  expect_same(shown);
}

TEST(LazyScreen, KeysMoveTheThreshold) {
  Shown shown;
  shown.change([](Choices& choices) { choices.lazy.threshold = 0.5; });
  EXPECT_TRUE(shown->act(Act::handle_up));
  EXPECT_NEAR(shown.choices().lazy.threshold, 0.51, 1e-12);
  EXPECT_TRUE(shown->act(Act::handle_down_fast));
  EXPECT_NEAR(shown.choices().lazy.threshold, 0.41, 1e-12);
  EXPECT_FALSE(shown->act(Act::swipe));
  shown.settle();
  expect_same(shown);
  for (int i = 0; i < 12; ++i) shown->act(Act::handle_up_fast);
  EXPECT_DOUBLE_EQ(shown.choices().lazy.threshold, 1);
}

TEST(LazyScreen, SwitchesReadOtherArraysOrDecideOtherwise) {
  Shown shown;
  shown.change([](Choices& choices) { choices.lazy.threshold = 0.85; });
  const auto by_decode = shown->view().rates;
  shown.control<QDoubleSpinBox>("w_last").setValue(2);
  shown.control<QComboBox>("identify").setCurrentIndex(0);
  shown.settle();
  EXPECT_NE(shown->view().rates, by_decode);  // layer 0 is lazy by its last two rows
  expect_same(shown);
  shown.control<QComboBox>("proximity").setCurrentIndex(1);
  shown.settle();
  EXPECT_EQ(shown.choices().lazy_arrays.keep, (kernels::Proximity{16, 112}));
  expect_same(shown);
  EXPECT_TRUE(shown->view().head_rates.empty());
  shown.control<QComboBox>("granularity").setCurrentIndex(1);
  shown.settle();
  EXPECT_EQ(shown->view().head_rates.size(), 4u);
  shown.control<QCheckBox>("fixed").setChecked(true);
  shown.settle();
  expect_same(shown);
  shown.change([](Choices& choices) { choices.task = "needle"; });
  expect_same(shown);
  EXPECT_THAT(shown->masses_chart().chart().notes.front(), HasSubstr("4 samples"));
}

TEST(LazyScreen, FollowsTheChosenLayer) {
  Shown shown;
  Selection selection;
  selection.layer = 2;
  shown.session().selection().set(selection);
  EXPECT_EQ(shown->masses_chart().chart().marks.back().label, "layer 2");
  EXPECT_THAT(shown->focus_text().toStdString(), HasSubstr("layer 2: lazy in"));
  shown->act(Act::right);
  EXPECT_EQ(shown.session().selection().current().layer, 3);
  shown->act(Act::right);
  EXPECT_EQ(shown.session().selection().current().layer, 3);
}

TEST(LazyScreen, SaysWhatTheProfileLacks) {
  Shown shown({.samples = 2, .lazy = false});
  EXPECT_THAT(shown->message().toStdString(), HasSubstr("--capture lazy"));
  EXPECT_EQ(shown->picture(), nullptr);
  EXPECT_TRUE(shown->table().rows.empty());
}

TEST(LazyScreen, AsksForAProfile) {
  Session session;
  LazyScreen screen(session, nullptr);
  screen.show();
  EXPECT_THAT(screen.message().toStdString(), HasSubstr("Open a profile"));
}

}  // namespace
}  // namespace kvatlas::viewer::lazy_screen_tests
