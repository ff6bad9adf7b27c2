// SPDX-License-Identifier: Apache-2.0
// The window: screens in the middle, and around them what holds for all of them.
#pragma once

#include <QMainWindow>
#include <vector>

#include "viewer/window/screens.hpp"
#include "viewer/window/session.hpp"

class QListWidget;
class QStackedWidget;

namespace kvatlas::viewer {

class MainWindow : public QMainWindow {
  Q_OBJECT

 public:
  /// Tests bring screens of their own.
  explicit MainWindow(Session& session, std::vector<ScreenEntry> entries = screens());

  /// The screen in front; nullptr on the start page.
  Screen* screen() const;
  /// Brings a screen to the front, which is made if it is the first time; false: there is none of
  /// that name.
  bool show_screen(const QString& id);

 private:
  Session& session_;
  const std::vector<ScreenEntry> entries_;
  std::vector<Screen*> made_;  // by entry; nullptr: not yet
  QListWidget* bar_;
  QStackedWidget* stack_;
};

}  // namespace kvatlas::viewer
