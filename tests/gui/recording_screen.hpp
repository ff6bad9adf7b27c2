// SPDX-License-Identifier: Apache-2.0
// A screen that notes what it is asked for, and a window with two of them.
#pragma once

#include <QMenu>
#include <QTest>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "viewer/frame/main_window.hpp"

namespace kvatlas::viewer::testing_gui {

class RecordingScreen : public Screen {
 public:
  RecordingScreen(const char* id, Session& session, QWidget* parent)
      : Screen(session, parent), id_(id) {
    ++made;
  }
  QString id() const override { return id_; }
  QString title() const override { return "Screen " + id_; }
  PicturePtr picture() const override {
    Chart chart;
    chart.title = "Two bars";
    chart.bars = {{"bars", {{0, 1}, {1, 2}}}};
    chart.table = table();
    return chart_picture(chart);
  }
  Table table() const override {
    ++tables;
    return {"",
            {{"layer"}, {"mass", "share"}, {"name"}},
            {{10.0, 0.5, "b"}, {9.0, 0.25, "c"}, {100.0, kNoNumber, "a"}}};
  }
  bool act(Act act) override {
    acts.push_back(act);
    return true;
  }
  QString focus_text() const override { return "focus of " + id_; }

  std::vector<Act> acts;
  mutable int tables = 0;
  static inline int made = 0;

 private:
  QString id_;
};

inline const std::vector<ScreenEntry> kRecordingScreens = {
    {"one", "One",
     [](Session& session, QWidget* parent) -> Screen* {
       return new RecordingScreen("one", session, parent);
     }},
    {"lazy", "Lazy layers",
     [](Session& session, QWidget* parent) -> Screen* {
       return new RecordingScreen("lazy", session, parent);
     }},
};

/// The small profile in a window that is shown; the settings are in its folder.
class ShownWindow {
 public:
  explicit ShownWindow(const calibrate::testing_profile::Shape& shape = {}) : small_(shape) {
    reopen();
  }
  void reopen() {
    window_ = std::make_unique<MainWindow>(session(), settings_file(), kRecordingScreens);
    window_->show();
    if (session().profile()) emit session().profile_changed();
    EXPECT_TRUE(QTest::qWaitForWindowExposed(window_.get()));
  }
  void close() { window_.reset(); }
  QString settings_file() const {
    return QString::fromStdString((small_.folder() / "viewer.ini").string());
  }
  Session& session() { return small_.session(); }
  MainWindow& window() { return *window_; }
  SmallSession& small() { return small_; }
  /// nullptr if no menu has the title. What it lists is made when it is about to show.
  QMenu* menu(const QString& title) {
    for (auto* found : window().findChildren<QMenu*>())
      if (found->title() == title) return found;
    return nullptr;
  }
  RecordingScreen& screen() { return dynamic_cast<RecordingScreen&>(*window_->screen()); }
  const Selection& selection() { return session().selection().current(); }

 private:
  SmallSession small_;
  std::unique_ptr<MainWindow> window_;
};

}  // namespace kvatlas::viewer::testing_gui
