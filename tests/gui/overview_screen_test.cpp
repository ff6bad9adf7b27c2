// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/overview_screen.hpp"

#include <QLabel>
#include <QPushButton>
#include <QSignalSpy>
#include <QTest>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "viewer/screens/policy_card.hpp"

namespace kvatlas::viewer {
namespace {

using namespace testing_gui;

QString line(const PolicyCardView& card, const char* name) {
  const auto* label = card.findChild<QLabel*>(QLatin1String(name));
  return label && label->isVisibleTo(&card) ? label->text() : QString();
}

void show(OverviewScreen& screen, int width = 1000, int height = 700) {
  screen.resize(width, height);
  screen.show();
  ASSERT_TRUE(wait_until([&] { return screen.settled() && !screen.view().cards.empty(); }));
}

TEST(OverviewScreen, ShowsEachPolicyOrWhatItMisses) {
  SmallSession small;
  OverviewScreen screen(small.session(), nullptr);
  show(screen);
  ASSERT_EQ(screen.cards().size(), 6u);
  EXPECT_TRUE(line(*screen.cards()[0], "kept").contains("of the cache kept"));
  EXPECT_TRUE(line(*screen.cards()[0], "risk").startsWith("Risk: "));
  EXPECT_TRUE(screen.cards()[0]->export_button().isEnabled());
  EXPECT_TRUE(line(*screen.cards()[3], "missing").contains("kvatlas calibrate headkv"));
  EXPECT_TRUE(line(*screen.cards()[4], "missing").contains("kvatlas calibrate lagkv"));
  EXPECT_FALSE(screen.cards()[3]->export_button().isEnabled());
  EXPECT_TRUE(line(*screen.cards()[5], "missing").contains("kvatlas calibrate precision"));
  EXPECT_TRUE(line(*screen.cards()[3], "kept").isEmpty());
  EXPECT_EQ(screen.table().rows.size(), 6u);
  ASSERT_NE(screen.picture(), nullptr);
  // All that a card says is below its chart.
  const auto* chart = screen.cards()[0]->findChild<ChartView*>();
  const auto* kept = screen.cards()[0]->findChild<QLabel*>("kept");
  ASSERT_TRUE(wait_until([&] { return chart->geometry().bottom() < kept->geometry().top(); }));
  ASSERT_TRUE(wait_until([&] {
    return screen.cards()[0]->height() >=
           screen.cards()[0]->heightForWidth(screen.cards()[0]->width());
  }));
  grab_screenshots(screen, small.session(), "overview");
}

TEST(OverviewScreen, FollowsChoices) {
  SmallSession small;
  OverviewScreen screen(small.session(), nullptr);
  show(screen);
  Choices choices = small.session().choices();
  choices.lazy.threshold = 1;
  small.session().change("Threshold", choices);
  ASSERT_TRUE(wait_until([&] {
    return screen.settled() && line(*screen.cards()[0], "setting").startsWith("threshold 1.000");
  }));
  EXPECT_TRUE(line(*screen.cards()[0], "kept").startsWith("100.0 %"));
  small.session().undo().undo();
  ASSERT_TRUE(wait_until(
      [&] { return !line(*screen.cards()[0], "setting").startsWith("threshold 1.000"); }));
}

TEST(OverviewScreen, ButtonsOpenAndExport) {
  SmallSession small;
  OverviewScreen screen(small.session(), nullptr);
  show(screen);
  QSignalSpy opened(&screen, &Screen::screen_wanted), exported(&screen, &Screen::export_wanted);
  screen.cards()[1]->open_button().setFocus();
  QTest::keyClick(&screen.cards()[1]->open_button(), Qt::Key_Space);
  QTest::mouseClick(&screen.cards()[2]->export_button(), Qt::LeftButton);
  ASSERT_EQ(opened.size(), 1);
  EXPECT_EQ(opened[0][0].toString(), "blocks");
  ASSERT_EQ(exported.size(), 1);
  EXPECT_EQ(exported[0][0].toString(), "dynamickv");
  // Where the blocks are: layers 1 and 2.
  EXPECT_EQ(small.session().selection().current().layer, *screen.cards()[1]->card().advice.layer);
}

TEST(OverviewScreen, CardsWrap) {
  SmallSession small;
  OverviewScreen screen(small.session(), nullptr);
  show(screen, 420);
  const auto top = [&](int card) { return screen.cards()[card]->y(); };
  EXPECT_LT(top(0), top(1));
  screen.resize(800, 700);
  ASSERT_TRUE(wait_until([&] { return top(0) == top(1); }));
  EXPECT_LT(top(1), top(2));
  screen.resize(1800, 700);  // not five and one below
  ASSERT_TRUE(wait_until([&] { return top(0) == top(3); }));
  EXPECT_LT(top(3), top(4));
  screen.resize(2200, 700);
  ASSERT_TRUE(wait_until([&] { return top(0) == top(5); }));
}

TEST(OverviewScreen, AsksForAProfile) {
  Session session;
  OverviewScreen screen(session, nullptr);
  screen.show();
  EXPECT_TRUE(screen.message().contains("Open a profile"));
  EXPECT_EQ(screen.picture(), nullptr);
}

}  // namespace
}  // namespace kvatlas::viewer
