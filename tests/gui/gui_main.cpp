// SPDX-License-Identifier: Apache-2.0
// One QApplication for all tests of a program: no display, one font, the light theme.
#include <QApplication>
#include <QStandardPaths>
#include <malloc.h>

#include <gtest/gtest.h>

#include "viewer/draw/theme.hpp"

int main(int argc, char** argv) {
  mallopt(M_PERTURB, 165);  // what is read after it was freed, in Qt too, shows
  testing::InitGoogleTest(&argc, argv);
  if (!qEnvironmentVariableIsSet("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  QStandardPaths::setTestModeEnabled(true);
  QApplication application(argc, argv);
  kvatlas::viewer::apply_theme(
      application, kvatlas::viewer::make_theme(false, QFont(QStringLiteral("DejaVu Sans"), 10)));
  return RUN_ALL_TESTS();
}
