// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

/// `kvatlas export`: a policy document to the files that runtimes read.
void add_export_command(CLI::App& app);
/// `kvatlas import`: others' head patterns to a policy document.
void add_import_command(CLI::App& app);

}  // namespace kvatlas
