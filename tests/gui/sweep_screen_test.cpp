// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/sweep_screen.hpp"

#include <QPushButton>

#include <gmock/gmock.h>

#include "calibrate/methods/lagkv.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "tests/gui/shown_screen.hpp"

namespace kvatlas::viewer::sweep_screen_tests {
namespace {

using testing::HasSubstr;
using testing_gui::grab_screenshots;
using testing_gui::open_and_wait;
using testing_gui::ShownScreen;
using Shown = ShownScreen<SweepScreen>;

/// The document that `kvatlas calibrate lagkv` makes of the small profile.
std::filesystem::path written_sweep(Shown& shown) {
  const profile::Reader reader(shown.small().profile_path());
  const calibrate::Evidence evidence(reader, {});
  calibrate::LagRequest request;
  request.lags = {32, 64};
  request.ratios = {"1/2", "1/4"};
  calibrate::Document document;
  document.model = calibrate::model_info(reader.header());
  document.provenance = calibrate::provenance(evidence);
  document.provenance.tool_version = "0.1.0";
  auto& section = document.sections["lagkv"];
  section = calibrate_lagkv(evidence, request, {}).section;
  for (auto& entry : section.at("sweep"))
    entry.update({{"digits_prefix", 0.5}, {"digits_in_place", 0.75}});
  auto path = shown.small().folder() / "policy.json";
  calibrate::write_document(document, path, false);
  return path;
}

TEST(SweepScreen, NeedsADocument) {
  Shown shown({.samples = 2});
  EXPECT_THAT(shown->message().toStdString(), HasSubstr("no sweep of LagKV"));
}

TEST(SweepScreen, PointsAndHandles) {
  Shown shown;
  open_and_wait(shown.session(), {written_sweep(shown)});
  shown.settle();
  EXPECT_EQ(shown->message(), QString());
  shown.control<QComboBox>("score").setCurrentIndex(3);
  shown.settle();
  ASSERT_GE(shown->view().chart.points.size(), 2u);
  grab_screenshots(*shown, shown.session(), "sweep-screen");
  // A click on a point chooses its setting.
  QTest::mouseClick(&shown->chart(), Qt::LeftButton, {}, shown->chart().point_place(1, 0));
  shown.settle();
  EXPECT_EQ(shown.choices().lag_candidate, static_cast<int>(shown->view().candidates[1][0]));
  EXPECT_EQ(shown->view().chart.points.back().label, "chosen");
  EXPECT_THAT(shown->focus_text().toStdString(), HasSubstr("chosen: lag 64"));
  EXPECT_TRUE(shown->pattern_chart().isVisible());
  EXPECT_THAT(shown->pattern_chart().chart().title, HasSubstr("by lag 64"));
  shown.session().undo().undo();
  shown.settle();
  EXPECT_EQ(shown.choices().lag_candidate, -1);
  EXPECT_THAT(shown->focus_text().toStdString(), HasSubstr("recommended: "));
  // Left and right walk LagKV's own candidates, from the recommended one on.
  const auto recommended = static_cast<int>(shown->view().recommended.value());
  const Act away = recommended == 0 ? Act::right : Act::left;
  EXPECT_TRUE(shown->act(away));
  shown.settle();
  EXPECT_EQ(shown.choices().lag_candidate, recommended == 0 ? 1 : recommended - 1);
  for (int i = 0; i < 9; ++i) shown->act(Act::left);
  EXPECT_EQ(shown.choices().lag_candidate, 0);
  shown.control<QPushButton>("recommended_button").click();
  shown.settle();
  EXPECT_EQ(shown.choices().lag_candidate, -1);
  const double before = shown.choices().sweep.wanted_compression;
  shown.drag_handle(shown->chart(), Handle::wanted_compression, {-200, 0});
  EXPECT_LT(shown.choices().sweep.wanted_compression, before);
  shown->act(Act::handle_down);
  EXPECT_NEAR(shown.choices().sweep.least_share, 0.94, 1e-12);
  shown.control<QComboBox>("against").setCurrentIndex(1);
  shown.settle();
  EXPECT_THAT(shown->view().chart.title, HasSubstr("tokens kept"));
  shown.control<QDoubleSpinBox>("wanted").setValue(40);
  shown.control<QDoubleSpinBox>("least").setValue(80);
  shown.settle();
  EXPECT_NEAR(shown.choices().sweep.wanted_compression, 0.4, 1e-12);
  EXPECT_NEAR(shown.choices().sweep.least_share, 0.8, 1e-12);
  for (const auto& [row, words] : {std::pair{1, "first wrong"}, std::pair{2, "at their place"}}) {
    shown.control<QComboBox>("score").setCurrentIndex(row);
    shown.settle();
    EXPECT_THAT(shown->view().chart.y.title, HasSubstr(words));
  }
}

}  // namespace
}  // namespace kvatlas::viewer::sweep_screen_tests
