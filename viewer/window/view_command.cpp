// SPDX-License-Identifier: Apache-2.0
// The command `kvatlas view`.
#include <QApplication>
#include <filesystem>
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>

#include "viewer/commands.hpp"
#include "viewer/window/main_window.hpp"
#include "viewer/window/session.hpp"

namespace kvatlas {

namespace {

int run_window(const std::vector<std::filesystem::path>& paths) {
  int count = 1;
  char name[] = "kvatlas";
  char* arguments[] = {name, nullptr};
  const QApplication application(count, arguments);
  viewer::Session session;
  viewer::MainWindow window(session);
  session.open(paths);
  window.show();
  return QApplication::exec();
}

}  // namespace

void add_view_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("view", "Look at profiles and policies in a window");
  const auto paths = std::make_shared<std::vector<std::filesystem::path>>();
  command->add_option("files", *paths, "Profiles (.h5) and policy documents (.json)");
  command->callback([paths] { run_window(*paths); });
}

}  // namespace kvatlas
