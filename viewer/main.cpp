// SPDX-License-Identifier: Apache-2.0
// The program kvatlas-viewer, which `kvatlas` starts for `view`, `render` and `report`.
#include "base/program.hpp"
#include "viewer/draw/commands.hpp"
#include "viewer/frame/commands.hpp"

int main(int argc, char** argv) {
  return kvatlas::run_program(argc, argv, "kvatlas " KVATLAS_VERSION, [](CLI::App& app) {
    kvatlas::viewer::add_viewer_commands(app, {.view = kvatlas::viewer::run_view,
                                               .render = kvatlas::viewer::run_render,
                                               .report = kvatlas::viewer::run_report});
  });
}
