// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "calibrate/trials.hpp"

namespace CLI {
class App;
}

namespace kvatlas {

/// `kvatlas calibrate`: a profile to a policy document. `make_trials` runs the model; null where
/// LibTorch is missing, then --model is refused.
void add_calibrate_command(CLI::App& app, calibrate::MakeTrials make_trials);

/// `kvatlas evaluate`: policies tried on the model. Where LibTorch is.
void add_evaluate_command(CLI::App& app);

}  // namespace kvatlas

namespace kvatlas::calibrate {

/// Whether the file begins as a policy document does, as JSON.
bool is_policy_file(const std::string& path);

/// Prints what a policy document says, or the document itself.
void inspect_policy(const std::string& path, bool as_json);

}  // namespace kvatlas::calibrate
