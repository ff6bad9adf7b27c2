// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "analyzer/commands.hpp"
#include "calibrate/trials.hpp"

namespace CLI {
class App;
}

namespace kvatlas {

/// `kvatlas calibrate`: a profile to a policy document. `make_trials` runs the model; null where
/// LibTorch is missing, then --model is refused. `add_auto` adds its search over all methods.
void add_calibrate_command(CLI::App& app, calibrate::MakeTrials make_trials,
                           const std::function<void(CLI::App& calibrate)>& add_auto);
/// `kvatlas calibrate auto`. Where LibTorch is.
void add_auto_command(CLI::App& calibrate);

/// `kvatlas diff`: two profiles or two policy documents beside each other.
void add_diff_command(CLI::App& app);

/// `kvatlas evaluate`: policies tried on the model. Where LibTorch is.
void add_evaluate_command(CLI::App& app);

/// `kvatlas check`: a gate for releases. Where LibTorch is.
void add_check_command(CLI::App& app);

}  // namespace kvatlas

namespace kvatlas::calibrate {

/// What `kvatlas inspect` does with policy documents: what they say, or the document itself, and
/// the memory that their policies take.
InspectedKind inspected_policies();

}  // namespace kvatlas::calibrate
