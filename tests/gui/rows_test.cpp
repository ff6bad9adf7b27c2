// SPDX-License-Identifier: Apache-2.0
#include <QMouseEvent>
#include <QTest>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"
#include "viewer/screens/rows_screen.hpp"

namespace kvatlas::viewer {
namespace {

using ::testing::HasSubstr;
using testing_gui::wait_until;

class RowsScreenTest : public ::testing::Test {
 protected:
  RowsScreenTest() {
    testing_gui::write_map_profile(folder_.path() / "p.h5", {700, 5000});
    testing_gui::open_and_wait(session_, {folder_.path() / "p.h5"});
    screen_ = std::make_unique<RowsScreen>(session_, nullptr);
    screen_->resize(1000, 660);
    screen_->show();
  }
  bool settled() {
    return wait_until([&] { return screen_->settled() && screen_->table().rows.size() > 1; });
  }

  testing_support::TemporaryFolder folder_;
  Session session_;
  std::unique_ptr<RowsScreen> screen_;
};

TEST_F(RowsScreenTest, ShowsTheChosenHeadsRowsAndTheirTopKeys) {
  ASSERT_TRUE(settled());
  const auto table = screen_->table();
  // Head 0 of layer 0 gives its first key 0.1 and a little; nothing else gets as much.
  EXPECT_EQ(table.rows[0][1].number, 0);
  EXPECT_NEAR(table.rows[0][3].number, 0.1003, 1e-3);
  EXPECT_GT(table.rows[0][3].number, table.rows[1][3].number);
  const Chart& chart = screen_->lines_view().chart();
  ASSERT_EQ(chart.lines.size(), 1u);
  EXPECT_TRUE(chart.y.logarithmic);
  ASSERT_EQ(chart.bands.size(), 1u);
  for (const auto& point : chart.bands[0].edges) EXPECT_LE(point.low, point.high);
  ASSERT_FALSE(chart.points.empty());  // SimLayerKV's kept keys
  EXPECT_THAT(chart.points[0].label, HasSubstr("SimLayerKV"));
  testing_gui::grab_screenshots(*screen_, session_, "rows");
}

TEST_F(RowsScreenTest, FollowsTheSelectionAndHasALineAHead) {
  ASSERT_TRUE(settled());
  Selection selection = session_.selection().current();
  selection.layer = 2;
  selection.head = 3;
  session_.selection().set(selection);
  ASSERT_TRUE(wait_until([&] {
    return screen_->settled() && screen_->table().rows[0][3].number > 0.5;  // 0.1 + 0.04 * 11
  }));
  screen_->set_lines(RowsScreen::Lines::all_heads);
  ASSERT_TRUE(wait_until(
      [&] { return screen_->settled() && screen_->lines_view().chart().lines.size() == 4; }));
  EXPECT_EQ(screen_->lines_view().chart().lines[0].label, "L2.H3");
  screen_->set_lines(RowsScreen::Lines::mean);
  ASSERT_TRUE(wait_until(
      [&] { return screen_->settled() && screen_->lines_view().chart().lines.size() == 1; }));
  EXPECT_EQ(screen_->lines_view().chart().lines[0].label, "mean of layer 2");
  EXPECT_NEAR(screen_->table().rows[0][3].number, 0.1 + 0.04 * 9.5, 2e-3);
}

TEST_F(RowsScreenTest, BrushingZoomsAllScreens) {
  using Keys = std::pair<std::int64_t, std::int64_t>;
  ASSERT_TRUE(settled());
  emit const_cast<ChartView&>(screen_->lines_view()).range_brushed(99.6, 200.2);
  EXPECT_EQ(screen_->keys(), (Keys{100, 201}));
  EXPECT_EQ(session_.selection().current().tokens, (Keys{100, 201}));
  ASSERT_TRUE(wait_until([&] { return screen_->table().rows[0][1].number >= 100; }));
  for (const auto& row : screen_->table().rows) EXPECT_GE(row[1].number, 100);
  EXPECT_TRUE(screen_->act(Act::escape));
  EXPECT_EQ(screen_->keys().second, 700);
  EXPECT_FALSE(session_.selection().current().tokens);
  screen_->act(Act::zoom_in);
  EXPECT_EQ(screen_->keys(), (Keys{175, 525}));
  screen_->act(Act::pan_right);  // by an eighth of what is shown
  EXPECT_EQ(screen_->keys(), (Keys{218, 568}));
  screen_->act(Act::pan_left);
  EXPECT_EQ(screen_->keys(), (Keys{175, 525}));
  for (int i = 0; i < 9; ++i) screen_->act(Act::pan_left);
  EXPECT_EQ(screen_->keys(), (Keys{0, 350}));
  // Another screen, or a link, zooms this one.
  Selection selection = session_.selection().current();
  selection.tokens = {{300, 9000}};
  session_.selection().set(selection);
  EXPECT_EQ(screen_->keys(), (Keys{300, 700}));
  ASSERT_TRUE(wait_until([&] { return screen_->settled(); }));
  for (const auto& row : screen_->table().rows) EXPECT_GE(row[1].number, 300);
  selection.tokens = {{800, 900}};  // this prompt has no such tokens
  session_.selection().set(selection);
  EXPECT_EQ(screen_->keys(), (Keys{0, 700}));
}

TEST_F(RowsScreenTest, ADragAcrossTheChartBrushes) {
  ASSERT_TRUE(settled());
  auto& view = const_cast<ChartView&>(screen_->lines_view());
  // Charts thin long prompts: a point a step of keys, the marks in front of the lines.
  const QPoint middle = view.rect().center();
  const QPoint to(middle.x() + view.width() / 6, middle.y());
  QTest::mousePress(&view, Qt::LeftButton, {}, middle);
  QMouseEvent move(QEvent::MouseMove, to, view.mapToGlobal(to), Qt::NoButton, Qt::LeftButton, {});
  QCoreApplication::sendEvent(&view, &move);
  QTest::mouseRelease(&view, Qt::LeftButton, {}, to);
  ASSERT_TRUE(session_.selection().current().tokens);
  const auto [first, last] = screen_->keys();
  EXPECT_GT(first, 250);
  EXPECT_LT(last, 600);
  EXPECT_NEAR(static_cast<double>(last - first), 700.0 / 6, 40);
}

TEST_F(RowsScreenTest, LongPromptsAreThinnedWithoutLosingAPeak) {
  Selection selection = session_.selection().current();
  selection.sample = 1;
  session_.selection().set(selection);
  const Chart& chart = screen_->lines_view().chart();
  ASSERT_TRUE(
      wait_until([&] { return !chart.lines.empty() && chart.lines[0].points.back().x > 4000; }));
  EXPECT_LE(chart.lines[0].points.size(), 600u);
  EXPECT_EQ(chart.lines[0].points[0].x, 0);
  EXPECT_NEAR(chart.lines[0].points[0].y, 0.1, 1e-3);
}

TEST(RowsScreen, WithoutRowsSaysHowToCaptureThem) {
  testing_gui::SmallSession small;
  RowsScreen screen(small.session(), nullptr);
  screen.show();
  ASSERT_TRUE(wait_until([&] { return !screen.message().isEmpty(); }));
  EXPECT_THAT(screen.message().toStdString(), HasSubstr("--capture maps"));
  EXPECT_EQ(screen.picture(), nullptr);
}

}  // namespace
}  // namespace kvatlas::viewer
