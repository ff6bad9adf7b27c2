// SPDX-License-Identifier: Apache-2.0
// The command `kvatlas view`.
#include <QApplication>
#include <QStandardPaths>
#include <QTimer>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/surroundings.hpp"
#include "viewer/frame/commands.hpp"
#include "viewer/frame/main_window.hpp"
#include "viewer/models/link.hpp"
#include "viewer/screens/session.hpp"

namespace kvatlas::viewer {

namespace {

constexpr const char* kWithoutWindow =
    "'kvatlas render' draws one chart or map and 'kvatlas report' makes a page without one";

/// Qt ends the program without a display; this says so before.
void check_display() {
  const char* platform = std::getenv("QT_QPA_PLATFORM");
  const std::string_view wanted = platform ? platform : "";
  const bool needs_none =
      !wanted.empty() && wanted.rfind("xcb", 0) != 0 && wanted.rfind("wayland", 0) != 0;
  if (needs_none || !display_name().empty()) return;
  fail(ErrorCode::usage,
       "there is no display to open a window on (neither DISPLAY nor WAYLAND_DISPLAY is set): ",
       kWithoutWindow);
}

/// Qt says in several lines that it reaches no display, and aborts; this says it in one.
void end_without_display(QtMsgType type, const QMessageLogContext&, const QString& text) {
  if (type == QtFatalMsg) {
    std::fprintf(stderr, "kvatlas: no window can be opened on the display '%s': %s\n",
                 qPrintable(qEnvironmentVariable("DISPLAY")), kWithoutWindow);
    std::_Exit(exit_status(ErrorCode::usage));
  }
  if (type == QtCriticalMsg) std::fprintf(stderr, "%s\n", qPrintable(text));
}

/// Where the window goes first; nothing: where it was last.
std::optional<Place> first_place(const ViewOptions& options) {
  if (options.screen.empty() && options.at.empty()) return std::nullopt;
  Place place;
  if (!options.at.empty()) place = parse_link("kvatlas:#at=" + options.at).place;
  place.screen = options.screen;
  if (!options.screen.empty()) {
    std::string known;
    for (const auto& entry : screens()) {
      if (options.screen == entry.id) return place;
      known += str(known.empty() ? "" : ", ", entry.id);
    }
    fail(ErrorCode::usage, "there is no screen ", quoted(options.screen), ", expected one of ",
         known);
  }
  return place;
}

}  // namespace

void run_view(const ViewOptions& options) {
  const auto place = first_place(options);
  check_display();
  const auto messages = qInstallMessageHandler(end_without_display);
  int count = 1;
  char name[] = "kvatlas";
  char* arguments[] = {name, nullptr};
  const QApplication application(count, arguments);
  QApplication::setApplicationName("kvatlas");
  qInstallMessageHandler(messages);
  Session session;
  const auto folder = QStandardPaths::writableLocation(QStandardPaths::GenericConfigLocation);
  MainWindow window(session, folder + "/kvatlas/viewer.ini");
  if (options.dark) window.set_look("dark", false);
  if (!options.baseline.empty()) window.open_all({QString::fromStdString(options.baseline)}, true);
  QStringList files;
  for (const auto& file : options.files) files << QString::fromStdString(file);
  window.open_all(files);
  if (place) window.go_to_when_open(*place);
  window.show();
  // At Ctrl+C or a kill the window closes as by its own button, which keeps where it was.
  QTimer interrupts;
  interrupts.callOnTimeout([] {
    if (interrupted()) QApplication::closeAllWindows();
  });
  interrupts.start(200);
  QApplication::exec();
  stop_if_interrupted();
}

}  // namespace kvatlas::viewer
