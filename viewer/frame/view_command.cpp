// SPDX-License-Identifier: Apache-2.0
// The command `kvatlas view`.
#include <QApplication>
#include <QStandardPaths>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "viewer/frame/main_window.hpp"
#include "viewer/models/commands.hpp"
#include "viewer/models/link.hpp"
#include "viewer/screens/session.hpp"

namespace kvatlas {

namespace {

constexpr const char* kExamples = R"(Examples:
  kvatlas view p.h5 policy.json                      a profile, and the policy calibrated from it
  kvatlas view p.h5 --screen lazy --at L12.H3        straight to a place
  kvatlas view new.h5 --baseline old.h5              two profiles, compared on every screen
  kvatlas view 'kvatlas:/data/p.h5#screen=maps&at=L12.H3'   a link that "Copy link" made

Without a display, 'kvatlas render' draws one chart or map and 'kvatlas report' makes a page.)";

struct Options {
  std::vector<std::string> files;
  std::string baseline, screen, at;
  bool dark = false;
};

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value != '\0';
}

/// Qt ends the program without a display; this says so before.
void check_display() {
  const char* platform = std::getenv("QT_QPA_PLATFORM");
  const std::string_view wanted = platform ? platform : "";
  const bool needs_none =
      !wanted.empty() && wanted.rfind("xcb", 0) != 0 && wanted.rfind("wayland", 0) != 0;
  if (needs_none || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")) return;
  fail(ErrorCode::usage,
       "there is no display to open a window on (neither DISPLAY nor WAYLAND_DISPLAY is set): "
       "'kvatlas render' draws one chart or map and 'kvatlas report' makes a page without one");
}

/// Where the window goes first; nothing: where it was last.
std::optional<viewer::Place> first_place(const Options& options) {
  if (options.screen.empty() && options.at.empty()) return std::nullopt;
  viewer::Place place;
  if (!options.at.empty()) place = viewer::parse_link("kvatlas:#at=" + options.at).place;
  place.screen = options.screen;
  if (!options.screen.empty()) {
    std::string known;
    for (const auto& entry : viewer::screens()) {
      if (options.screen == entry.id) return place;
      known += str(known.empty() ? "" : ", ", entry.id);
    }
    fail(ErrorCode::usage, "there is no screen ", quoted(options.screen), ", expected one of ",
         known);
  }
  return place;
}

void run_window(const Options& options) {
  const auto place = first_place(options);
  check_display();
  int count = 1;
  char name[] = "kvatlas";
  char* arguments[] = {name, nullptr};
  const QApplication application(count, arguments);
  QApplication::setApplicationName("kvatlas");
  viewer::Session session;
  const auto folder = QStandardPaths::writableLocation(QStandardPaths::GenericConfigLocation);
  viewer::MainWindow window(session, folder + "/kvatlas/viewer.ini");
  if (options.dark) window.set_look("dark", false);
  if (!options.baseline.empty()) window.open_all({QString::fromStdString(options.baseline)}, true);
  QStringList files;
  for (const auto& file : options.files) files << QString::fromStdString(file);
  window.open_all(files);
  if (place) window.go_to_when_open(*place);
  window.show();
  QApplication::exec();
}

}  // namespace

void add_view_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("view", "Look at profiles and policies in a window");
  const auto options = std::make_shared<Options>();
  command->add_option("files", options->files,
                      "Profiles (.h5), policy documents (.json) and links (kvatlas:…)");
  command->add_option("--baseline", options->baseline, "A profile to compare with");
  command->add_option("--screen", options->screen, "The screen to begin with, such as lazy");
  command->add_option("--at", options->at, "The layer and head to begin with, such as L12.H3");
  command->add_flag("--dark", options->dark, "Dark, this time");
  command->footer(kExamples);
  command->callback([options] { run_window(*options); });
}

}  // namespace kvatlas
