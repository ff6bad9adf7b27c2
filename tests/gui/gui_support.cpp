// SPDX-License-Identifier: Apache-2.0
#include "tests/gui/gui_support.hpp"

#include <QApplication>
#include <QDir>
#include <QPixmap>
#include <QSignalSpy>
#include <QTest>
#include <QWidget>

#include <gtest/gtest.h>

#include "tests/support/places.hpp"

namespace kvatlas::viewer::testing_gui {

bool wait_until(const std::function<bool()>& reached) { return QTest::qWaitFor(reached, 10000); }

void open_and_wait(Session& session, const std::vector<std::filesystem::path>& paths,
                   bool as_baseline) {
  QSignalSpy opened(&session, &Session::opened);
  session.open(paths, as_baseline);
  ASSERT_TRUE(wait_until([&] { return !opened.isEmpty(); }));
}

SmallSession::SmallSession(const calibrate::testing_profile::Shape& shape) {
  calibrate::testing_profile::write_profile(profile_path(), shape);
  open_and_wait(session_, {profile_path()});
  EXPECT_NE(session_.profile(), nullptr);
}

void grab_screenshots(QWidget& widget, Session& session, const QString& name) {
  const QDir folder(
      QString::fromStdString((kvatlas::testing_support::build_folder() / "screenshots").string()));
  ASSERT_TRUE(folder.mkpath(QStringLiteral(".")));
  const Theme before = session.theme();
  for (const bool dark : {false, true}) {
    Theme theme = make_theme(dark, before.font);
    theme.colours = before.colours;
    apply_theme(*qobject_cast<QApplication*>(QApplication::instance()), theme);
    session.set_theme(theme);
    QCoreApplication::processEvents();
    for (const int scale : {1, 2}) {
      QPixmap pixmap(widget.size() * scale);
      pixmap.setDevicePixelRatio(scale);
      pixmap.fill(theme.panel);
      widget.render(&pixmap);
      EXPECT_TRUE(pixmap.save(folder.filePath(
          QStringLiteral("%1-%2-%3x.png").arg(name, dark ? "dark" : "light").arg(scale))));
    }
  }
  apply_theme(*qobject_cast<QApplication*>(QApplication::instance()), before);
  session.set_theme(before);
}

}  // namespace kvatlas::viewer::testing_gui
