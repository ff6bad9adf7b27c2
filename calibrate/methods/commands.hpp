// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "calibrate/methods/trials.hpp"

namespace CLI {
class App;
}

namespace kvatlas {

/// `kvatlas calibrate`: a profile to a policy document. `make_trials` runs the model; null where
/// LibTorch is missing, then --model is refused. `add_auto` adds its search over all methods.
void add_calibrate_command(CLI::App& app, calibrate::MakeTrials make_trials,
                           const std::function<void(CLI::App& calibrate)>& add_auto);

}  // namespace kvatlas
