// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

// These commands run the model, so they exist only in a build with LibTorch.

/// Adds `kvatlas calibrate auto`, a search over all methods.
void add_auto_command(CLI::App& calibrate);

/// Adds `kvatlas evaluate`, which tries policies on the model.
void add_evaluate_command(CLI::App& app);

/// Adds `kvatlas check`, a gate for releases.
void add_check_command(CLI::App& app);

}  // namespace kvatlas
