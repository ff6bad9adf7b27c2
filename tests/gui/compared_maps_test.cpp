// SPDX-License-Identifier: Apache-2.0
#include <QListWidget>
#include <QSignalSpy>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"
#include "viewer/screens/comparison_screen.hpp"

namespace kvatlas::viewer {
namespace {

TEST(ComparedMaps, TheListOfHeadsLeadsToTheHead) {
  testing_support::TemporaryFolder folder;
  testing_gui::write_map_profile(folder.path() / "p.h5", {700});
  testing_gui::write_map_profile(folder.path() / "b.h5", {500});
  Session session;
  testing_gui::open_and_wait(session, {folder.path() / "p.h5"});
  testing_gui::open_and_wait(session, {folder.path() / "b.h5"}, true);
  ComparisonScreen screen(session, nullptr);
  screen.resize(1000, 660);
  screen.show();
  screen.show_kind(ComparisonScreen::Show::difference);
  ASSERT_TRUE(testing_gui::wait_until([&] { return !screen.diff().heads.empty(); }));
  const HeadChange& first = screen.diff().heads.front();
  // These profiles have maps alone: no layer's number changes, so the heads come first.
  ASSERT_EQ(screen.changes().count(), static_cast<int>(screen.diff().heads.size()));
  QListWidgetItem* item = screen.changes().item(0);
  EXPECT_THAT(
      item->text().toStdString(),
      ::testing::HasSubstr(QString("L%1.H%2").arg(first.layer).arg(first.head).toStdString()));
  QSignalSpy wanted(&screen, &Screen::screen_wanted);
  emit screen.changes().itemActivated(item);
  EXPECT_EQ(session.selection().current().layer, first.layer);
  EXPECT_EQ(session.selection().current().head, first.head);
  ASSERT_EQ(wanted.count(), 1);
  EXPECT_EQ(wanted[0][0].toString(), "maps");
}

}  // namespace
}  // namespace kvatlas::viewer
