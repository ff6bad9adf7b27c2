// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/main_window.hpp"

#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"

namespace kvatlas::viewer {
namespace {

using testing_gui::SmallSession;

QString settings_of(const SmallSession& small) {
  return QString::fromStdString((small.folder() / "viewer.ini").string());
}

class PlainScreen : public Screen {
 public:
  PlainScreen(const char* id, Session& session, QWidget* parent)
      : Screen(session, parent), id_(id) {
    ++made;
  }
  QString id() const override { return id_; }
  QString title() const override { return id_; }
  PicturePtr picture() const override { return nullptr; }
  Table table() const override { return {}; }
  bool act(Act) override { return false; }

  static inline int made = 0;

 private:
  QString id_;
};

const std::vector<ScreenEntry> kEntries = {
    {"one", "One",
     [](Session& session, QWidget* parent) -> Screen* {
       return new PlainScreen("one", session, parent);
     }},
    {"two", "Two",
     [](Session& session, QWidget* parent) -> Screen* {
       return new PlainScreen("two", session, parent);
     }},
};

TEST(MainWindow, ScreensAreMadeWhenFirstShown) {
  SmallSession small;
  PlainScreen::made = 0;
  MainWindow window(small.session(), settings_of(small), kEntries);
  EXPECT_EQ(window.screen(), nullptr);
  ASSERT_TRUE(window.show_screen("two"));
  EXPECT_EQ(window.screen()->id(), "two");
  EXPECT_EQ(PlainScreen::made, 1);
  ASSERT_TRUE(window.show_screen("one"));
  ASSERT_TRUE(window.show_screen("two"));
  EXPECT_EQ(PlainScreen::made, 2);
  EXPECT_FALSE(window.show_screen("three"));
  EXPECT_EQ(window.screen()->id(), "two");
}

TEST(MainWindow, EveryListedScreenCanBeShown) {
  SmallSession small;
  MainWindow window(small.session(), settings_of(small));
  for (const auto& entry : screens()) {
    ASSERT_TRUE(window.show_screen(entry.id));
    EXPECT_EQ(window.screen()->id(), entry.id);
  }
}

}  // namespace
}  // namespace kvatlas::viewer
