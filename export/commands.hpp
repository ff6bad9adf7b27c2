// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

/// `kvatlas export` turns a policy document into the files that runtimes read.
void add_export_command(CLI::App& app);
/// `kvatlas import` turns head patterns of other software into a policy document.
void add_import_command(CLI::App& app);

}  // namespace kvatlas
