// SPDX-License-Identifier: Apache-2.0
#include <QLineEdit>
#include <QSignalSpy>
#include <QTest>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"
#include "viewer/frame/main_window.hpp"
#include "viewer/screens/maps_screen.hpp"

namespace kvatlas::viewer {
namespace {

TEST(GridFilter, HidesOthersAndGoesBackWithTheSelection) {
  testing_support::TemporaryFolder folder;
  testing_gui::write_map_profile(folder.path() / "p.h5", {700});
  Session session;
  testing_gui::open_and_wait(session, {folder.path() / "p.h5"});
  MapsScreen screen(session, nullptr);
  screen.resize(1000, 660);
  screen.show();
  ASSERT_TRUE(testing_gui::wait_until([&] { return screen.grid().is_loaded(); }));
  EXPECT_EQ(screen.grid().shown_count(), 16);
  auto* field = screen.findChild<QLineEdit*>();
  ASSERT_NE(field, nullptr);
  const auto filter = [&](const char* text) {
    field->setText(text);
    QTest::keyClick(field, Qt::Key_Return);
  };
  field->clearFocus();
  EXPECT_TRUE(screen.act(Act::filter));
  EXPECT_EQ(screen.focusWidget(), field);
  filter("L1-L2 not H3");
  EXPECT_EQ(screen.grid().shown_count(), 6);
  EXPECT_EQ(screen.grid().in_sight().size(), 6u);
  EXPECT_EQ(screen.grid().in_sight().front(), (Thumbnails::Head{1, 0}));
  testing_gui::grab_screenshots(screen, session, "maps-filter");
  EXPECT_EQ(screen.table().rows.size(), 6u);
  const auto picture = screen.picture();
  EXPECT_THAT(picture->title(), ::testing::HasSubstr("L1-L2 not H3"));
  EXPECT_THAT(picture->csv(), ::testing::Not(::testing::HasSubstr("\n1,3,")));
  EXPECT_THAT(picture->csv(), ::testing::HasSubstr("\n2,2,"));
  // The chosen head is hidden: arrows go to the nearest one shown, and over hidden ones.
  EXPECT_TRUE(screen.act(Act::down));
  EXPECT_EQ(screen.grid().layer(), 1);
  EXPECT_TRUE(screen.act(Act::right));
  EXPECT_TRUE(screen.act(Act::right));
  EXPECT_TRUE(screen.act(Act::right));
  EXPECT_EQ(screen.grid().head(), 2);
  // Heads of the profile have a sink that grows with their number (map_profile.hpp).
  filter("sink>0.3");
  ASSERT_TRUE(testing_gui::wait_until([&] { return screen.grid().shown_count() != 6; }));
  EXPECT_GT(screen.grid().shown_count(), 0);
  EXPECT_LT(screen.grid().shown_count(), 16);
  EXPECT_EQ(screen.grid().in_sight().back(), (Thumbnails::Head{3, 3}));
  QSignalSpy message(&session, &Session::message);
  filter("hazy");
  EXPECT_EQ(message.count(), 1);
  EXPECT_EQ(session.selection().current().filter, "sink>0.3");
  session.selection().back();
  EXPECT_EQ(screen.grid().shown_count(), 6);
  EXPECT_EQ(field->text(), "L1-L2 not H3");
  while (session.selection().can_go_back()) session.selection().back();
  EXPECT_EQ(screen.grid().shown_count(), 16);
  EXPECT_EQ(field->text(), "");
}

TEST(GridFilter, TheWindowsKeysLeaveItsTextAlone) {
  testing_support::TemporaryFolder folder;
  testing_gui::write_map_profile(folder.path() / "p.h5", {700});
  Session session;
  MainWindow window(session, QString::fromStdString((folder.path() / "viewer.ini").string()));
  window.resize(1280, 720);
  window.show();
  testing_gui::open_and_wait(session, {folder.path() / "p.h5"});
  ASSERT_TRUE(window.show_screen("maps"));
  auto& screen = dynamic_cast<MapsScreen&>(*window.screen());
  auto* field = window.findChild<QLineEdit*>("filter");
  ASSERT_NE(field, nullptr);
  field->setFocus();
  QTest::keyClicks(field, "not L0 H1");
  EXPECT_EQ(field->text(), "not L0 H1");
  EXPECT_EQ(screen.grid().shown_count(), 16);
  QTest::keyClick(field, Qt::Key_Return);
  EXPECT_EQ(screen.grid().shown_count(), 3);
  EXPECT_FALSE(screen.shows_map());
  EXPECT_TRUE(screen.grid().hasFocus());
  QTest::keyClick(&screen.grid(), Qt::Key_Left, Qt::AltModifier);
  EXPECT_EQ(screen.grid().shown_count(), 16);
}

}  // namespace
}  // namespace kvatlas::viewer
