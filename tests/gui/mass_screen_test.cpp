// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/mass_screen.hpp"

#include <gmock/gmock.h>

#include "tests/gui/shown_screen.hpp"

namespace kvatlas::viewer::mass_screen_tests {
namespace {

using testing::HasSubstr;
using testing_gui::grab_screenshots;
using testing_gui::ShownScreen;
using Shown = ShownScreen<MassScreen>;

TEST(MassScreen, ThresholdSampleAndCells) {
  Shown shown({.samples = 3, .heatmap = true});
  EXPECT_EQ(shown->message(), QString());
  EXPECT_THAT(shown->heatmap_chart().chart().title, HasSubstr("sample 0"));
  EXPECT_EQ(shown->heatmap_chart().chart().matrices.at(0).column_labels.size(), 5u);
  grab_screenshots(*shown, shown.session(), "mass-screen");
  shown.change([](Choices& choices) { choices.lazy.threshold = 0.7; });
  EXPECT_DOUBLE_EQ(shown->view().lazy_shares[1], 0.8);
  shown.drag_handle(shown->heatmap_chart(), Handle::lazy_threshold, {0, -300});
  EXPECT_GT(shown.choices().lazy.threshold, 0.9);
  EXPECT_DOUBLE_EQ(shown->view().lazy_shares[1], 0);

  shown.control<QComboBox>("sample").setCurrentIndex(2);
  shown.settle();
  EXPECT_EQ(shown.session().selection().current().sample, 2u);
  EXPECT_THAT(shown->heatmap_chart().chart().title, HasSubstr("sample 2"));
  QTest::mouseClick(&shown->heatmap_chart(), Qt::LeftButton, {},
                    shown->heatmap_chart().cell_place(0, 1, 2));
  EXPECT_EQ(shown.session().selection().current().layer, 1);
  EXPECT_EQ(shown.session().selection().current().query, 149);
  EXPECT_THAT(shown->focus_text().toStdString(), HasSubstr("layer 1, token 149: mass 0.9"));
  shown->act(Act::right);
  EXPECT_EQ(shown.session().selection().current().query, 224);
}

TEST(MassScreen, GeneratedTokensAreChosenToo) {
  Shown shown({.samples = 2});  // eight last rows, from 292 on, and three generated tokens
  const auto& chart = shown->heatmap_chart();
  QTest::mouseClick(&shown->heatmap_chart(), Qt::LeftButton, {}, chart.cell_place(0, 1, 7));
  EXPECT_THAT(shown->focus_text().toStdString(), HasSubstr("layer 1, token 299"));
  for (const char* token : {"token 300", "token 301", "token 302", "token 302"}) {
    shown->act(Act::right);
    EXPECT_THAT(shown->focus_text().toStdString(), HasSubstr(token));
  }
  EXPECT_EQ(shown.session().selection().current().query, -1);  // no row of a map
  shown->act(Act::down);
  EXPECT_THAT(shown->focus_text().toStdString(), HasSubstr("layer 2, token 302"));
}

TEST(MassScreen, ShowsThePartThatAllScreensShow) {
  Shown shown({.samples = 2, .heatmap = true});
  Selection selection = shown.session().selection().current();
  selection.tokens = {{70, 230}};
  shown.session().selection().set(selection);
  shown.settle();
  EXPECT_THAT(shown->heatmap_chart().chart().matrices.at(0).column_labels,
              testing::ElementsAre("74", "149", "224"));
  EXPECT_TRUE(shown->act(Act::escape));
  shown.settle();
  EXPECT_EQ(shown->heatmap_chart().chart().matrices.at(0).column_labels.size(), 5u);
  EXPECT_FALSE(shown.session().selection().current().tokens);
}

TEST(MassScreen, ShowsLastRowsWhereTheProfileHasNoOthers) {
  Shown shown({.samples = 2});
  EXPECT_EQ(shown->message(), QString());
  EXPECT_EQ(shown.control<QComboBox>("rows").currentIndex(), 1);
  EXPECT_THAT(shown->heatmap_chart().chart().notes.front(), HasSubstr("default,heatmap"));
  Shown none({.samples = 2, .lazy = false});
  EXPECT_THAT(none->message().toStdString(), HasSubstr("--capture default,heatmap"));
}

}  // namespace
}  // namespace kvatlas::viewer::mass_screen_tests
