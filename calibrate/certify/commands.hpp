// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

/// Adds `kvatlas certify`, a gate for result files that other tools wrote.
void add_certify_command(CLI::App& app);

}  // namespace kvatlas
