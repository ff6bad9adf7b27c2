// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

inline constexpr char kEvaluateSummary[] =
    "Try cache policies on the model: what they save and what they cost";
inline constexpr char kCheckSummary[] =
    "Judge whether a policy still loses no more than it may: a gate for scripts";

// These commands run the model, so they exist only in a build with LibTorch.

/// Adds `kvatlas calibrate auto`, a search over all methods.
void add_auto_command(CLI::App& calibrate);

/// Adds `kvatlas evaluate`, which tries policies on the model.
void add_evaluate_command(CLI::App& app);

/// Adds `kvatlas check`, a gate for releases.
void add_check_command(CLI::App& app);

}  // namespace kvatlas
