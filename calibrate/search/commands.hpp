// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

// These commands run the model, so they exist where LibTorch is.

/// `kvatlas calibrate auto`: a search over all methods.
void add_auto_command(CLI::App& calibrate);

/// `kvatlas evaluate`: policies tried on the model.
void add_evaluate_command(CLI::App& app);

/// `kvatlas check`: a gate for releases.
void add_check_command(CLI::App& app);

}  // namespace kvatlas
