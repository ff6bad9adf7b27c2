// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/precision_screen.hpp"

#include <QLabel>
#include <QPushButton>

#include <gmock/gmock.h>

#include "calibrate/rules/evidence.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "tests/gui/shown_screen.hpp"
#include "tests/support/precision_section.hpp"

namespace kvatlas::viewer::precision_screen_tests {
namespace {

using testing::HasSubstr;
using testing_gui::grab_screenshots;
using testing_gui::open_and_wait;
using Shown = testing_gui::ShownScreen<PrecisionScreen>;

/// A document for the small profile.
std::filesystem::path written_document(Shown& shown) {
  const profile::Reader reader(shown.small().profile_path());
  calibrate::Document document;
  document.model = calibrate::model_info(reader.header());
  document.provenance = calibrate::provenance(calibrate::Evidence(reader, {}));
  document.provenance.tool_version = "0.1.0";
  document.sections["precision"] = testing_support::precision_section();
  auto path = shown.small().folder() / "policy.json";
  calibrate::write_document(document, path, false);
  return path;
}

TEST(PrecisionScreen, NeedsADocument) {
  Shown shown({.samples = 2});
  EXPECT_THAT(shown->message().toStdString(), HasSubstr("kvatlas calibrate precision"));
  EXPECT_FALSE(shown->act(Act::left));
}

TEST(PrecisionScreen, APointOfTheCurveBecomesThePolicy) {
  Shown shown;
  open_and_wait(shown.session(), {written_document(shown)});
  shown.settle();
  EXPECT_EQ(shown->message(), QString());
  EXPECT_TRUE(shown->strip_chart().isVisible());
  EXPECT_TRUE(shown->curve_chart().isVisible());
  EXPECT_THAT(shown->focus_text().toStdString(), HasSubstr("as calibrated: size 47.7 %"));
  grab_screenshots(*shown, shown.session(), "precision-screen");
  QTest::mouseClick(&shown->curve_chart(), Qt::LeftButton, {},
                    shown->curve_chart().point_place(0, 0));
  shown.settle();
  EXPECT_EQ(shown.choices().precision_point, 0);
  EXPECT_THAT(shown->focus_text().toStdString(), HasSubstr("chosen: size 31.2 %"));
  EXPECT_EQ(shown.control<QLabel>("chosen").text(), shown->focus_text());
  EXPECT_EQ(shown->view().strip.matrices.front().marked.size(), 8u);
  EXPECT_EQ(shown->view().strip.matrices.front().marked.front().first, 1u);  // keys in int4
  // What was measured beside it cannot be chosen.
  QTest::mouseClick(&shown->curve_chart(), Qt::LeftButton, {},
                    shown->curve_chart().point_place(1, 0));
  shown.settle();
  EXPECT_EQ(shown.choices().precision_point, 0);
  shown.session().undo().undo();
  shown.settle();
  EXPECT_EQ(shown.choices().precision_point, -1);
  // Keys walk the sizes from the calibrated one on, and stop at the ends.
  const std::vector<std::pair<Act, int>> steps = {{Act::left, 0},  {Act::left, 0},
                                                  {Act::right, 1}, {Act::handle_up, 2},
                                                  {Act::right, 2}, {Act::handle_down, 1}};
  for (const auto& [key, expected] : steps) {
    EXPECT_TRUE(shown->act(key));
    shown.settle();
    EXPECT_EQ(shown.choices().precision_point, expected);
  }
  shown.control<QPushButton>("calibrated_button").click();
  shown.settle();
  EXPECT_EQ(shown.choices().precision_point, -1);
}

TEST(PrecisionScreen, ACellSelectsItsLayer) {
  Shown shown;
  open_and_wait(shown.session(), {written_document(shown)});
  shown.settle();
  QTest::mouseClick(&shown->strip_chart(), Qt::LeftButton, {},
                    shown->strip_chart().cell_place(0, 1, 2));
  EXPECT_EQ(shown.session().selection().current().layer, 2);
}

}  // namespace
}  // namespace kvatlas::viewer::precision_screen_tests
