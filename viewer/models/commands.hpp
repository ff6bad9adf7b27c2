// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

/// `kvatlas view`: the window.
void add_view_command(CLI::App& app);
/// `kvatlas render`: one picture into a file.
void add_render_command(CLI::App& app);
/// `kvatlas report`: one page of all.
void add_report_command(CLI::App& app);

}  // namespace kvatlas
