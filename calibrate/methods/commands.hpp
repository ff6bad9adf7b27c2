// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "calibrate/methods/trials.hpp"

namespace CLI {
class App;
}

namespace kvatlas {

inline constexpr char kCalibrateSummary[] =
    "Find what the KV cache can do without, from a profile and trials on the model";

/// Adds `kvatlas calibrate`, which makes a policy document from a profile. `make_trials` runs the
/// model. It is null in a build without LibTorch, where --model is refused. `add_auto` adds the
/// subcommand that searches over all methods.
void add_calibrate_command(CLI::App& app, calibrate::MakeTrials make_trials,
                           const std::function<void(CLI::App& calibrate)>& add_auto);

}  // namespace kvatlas
