// SPDX-License-Identifier: Apache-2.0
// A live screen of the small profile, driven as a user would.
#pragma once

#include <QAction>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QTest>
#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "viewer/screens/live_screen.hpp"

namespace kvatlas::viewer::testing_gui {

template <class LiveScreenKind>
class ShownScreen {
 public:
  explicit ShownScreen(const calibrate::testing_profile::Shape& shape = {}) : small_(shape) {
    screen_ = std::make_unique<LiveScreenKind>(small_.session(), nullptr);
    screen_->resize(1280, 720);
    screen_->show();
    settle();
  }
  LiveScreenKind& operator*() { return *screen_; }
  LiveScreenKind* operator->() { return screen_.get(); }
  Session& session() { return small_.session(); }
  const Choices& choices() { return session().choices(); }
  SmallSession& small() { return small_; }
  /// Waits until what is shown is of the present choices.
  void settle() {
    ASSERT_TRUE(wait_until([&] { return screen_->settled(); }));
  }
  template <class Control>
  Control& control(const char* id) {
    auto* found = screen_->template findChild<Control*>(QString::fromLatin1(id));
    EXPECT_NE(found, nullptr) << id;
    return *found;
  }
  template <class Set>
  void change(Set set) {
    Choices changed = choices();
    set(changed);
    session().change(QStringLiteral("change"), changed);
    settle();
  }
  /// Takes a handle and drags it by so many pixels, in steps.
  void drag_handle(ChartView& chart, Handle handle, QPoint by) {
    const QPoint from = chart.handle_place(handle);
    ASSERT_FALSE(from.isNull());
    QTest::mousePress(&chart, Qt::LeftButton, {}, from);
    for (int step = 1; step <= 4; ++step) {
      QTest::mouseMove(&chart, from + by * step / 4);
      QTest::qWait(1);
    }
    QTest::mouseRelease(&chart, Qt::LeftButton, {}, from + by);
    settle();
  }

 private:
  SmallSession small_;
  std::unique_ptr<LiveScreenKind> screen_;
};

}  // namespace kvatlas::viewer::testing_gui
